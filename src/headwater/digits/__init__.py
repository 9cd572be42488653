"""Experiments on images: a small vision transformer for MNIST, its training, and how faithful methods are on it."""

NAME = "headwater/mnist"  # what the trained one is called in results, wherever it lies
