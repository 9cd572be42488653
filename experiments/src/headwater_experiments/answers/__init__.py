"""How faithful explanations of a language model's answers are: prompts, words replaced by others, three measures."""
