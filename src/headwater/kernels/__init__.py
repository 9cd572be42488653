"""Faster ways to compute what the rules compute. A rule asks for a kernel first, and computes plainly if there is none.

A kernel gives the numbers of the plain rule up to rounding: `tests/test_kernels.py` compares each with it.
"""
