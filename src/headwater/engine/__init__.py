"""One explanation of one batch: the forward pass under the rules, its checks, the way back, what each input gets."""
