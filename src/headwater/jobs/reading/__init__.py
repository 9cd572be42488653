"""Rows out of files, any stretch of them by number, without holding more than that stretch."""
