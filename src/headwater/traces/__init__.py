"""What a run does to tensors, written down once and played from then on: operations of torch, without our Python."""
