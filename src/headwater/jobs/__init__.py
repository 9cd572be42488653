"""A whole dataset explained from files to files: on one machine, or the same job on a Ray cluster."""
