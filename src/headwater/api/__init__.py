"""The functions that users call. Each is thin: it prepares, calls the engine, and gives a result."""
