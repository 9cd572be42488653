"""Stands for LXT where it is not installed: its names, its way of patching, the same rules in a few lines."""
