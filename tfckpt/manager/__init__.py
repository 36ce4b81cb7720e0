"""When to save, which checkpoints to keep, and which checkpoint a config selects."""
