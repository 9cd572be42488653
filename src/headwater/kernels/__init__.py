"""The same rules, faster. A rule asks here first; what no kernel knows it computes in its own plain way.

A kernel gives what the plain rule gives, within the dtype: `tests/test_kernels.py` holds each against it.
"""
