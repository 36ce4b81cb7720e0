"""Stored checkpoints: bundles, state files and commit records, read without TensorFlow.

All file access goes through :mod:`tfckpt.stored.io.files`. Input is untrusted until it is checked:
an index that passes the checks cannot abort the process when TensorFlow opens it later.
"""
