"""What explanations cost and whether they can be believed."""
