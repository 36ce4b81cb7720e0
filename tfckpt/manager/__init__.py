"""When to save, what to keep, which checkpoint a config means."""
