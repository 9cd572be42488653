"""The experiments of "XAI for Transformers" (Ali et al. 2022), run again: models, tables, figures."""
