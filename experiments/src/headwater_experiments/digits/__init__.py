"""Experiments on images: a small vision transformer for MNIST, its training, and how faithful methods are on it."""
