"""LXT's own beginning fails so beside a newer transformers."""

raise ImportError("cannot import name 'find_pruneable_heads_and_indices' from 'transformers.pytorch_utils'")
