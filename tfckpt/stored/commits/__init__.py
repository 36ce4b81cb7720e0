"""Commits: what makes files a checkpoint, and a directory a run."""
