"""Commits: commit records, staging and recovery of saves, and the checkpoints of a directory."""
