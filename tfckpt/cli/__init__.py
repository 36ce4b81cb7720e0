"""The command line: look at checkpoints, plans and policies without writing a script."""
