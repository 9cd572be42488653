"""Two small language models of other builds than Llama, trained on the texts at hand, to judge explanations on.

A rule that was chosen on one model may suit that model alone. `gpt2` has LayerNorm, GELU, biases and learned positions;
`t5` has an encoder, a decoder, and position biases in its attention.
"""
