"""`audit`: the same run, with every module, normalisation and attention head watched."""
