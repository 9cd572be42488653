"""Explanations on disk: a run's directory of parquet shards, written and read back as they were."""
