"""The commands that the experiments add to `headwater`."""
