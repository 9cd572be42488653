"""Whether explanations of a language model can be believed: public protocols, their data, a table, one sentence."""
