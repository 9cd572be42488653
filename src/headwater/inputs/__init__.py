"""Text and tensors -> Batch: what to run, and which tensor is the input to be explained."""
