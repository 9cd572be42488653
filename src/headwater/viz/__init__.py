"""Pictures of explanations: terminal, plain text, HTML. Pure functions of a result: no model, no files."""
