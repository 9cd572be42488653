"""Whether relevance inside a model can be believed: beside activation patching, which runs the model."""
