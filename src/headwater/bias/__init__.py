"""Questions asked of many explanations: relevance by group of words, and whether the groups really differ."""
