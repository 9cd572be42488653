"""Models: the small one that comes with the package, and the loader for all others."""
