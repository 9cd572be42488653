"""Whether explanations of two texts' similarity say what removing their words does."""
