"""How an explanation stays within a limit of memory: what is kept, moved to the host or disk, or computed again."""
