"""The training of the bundled model."""
