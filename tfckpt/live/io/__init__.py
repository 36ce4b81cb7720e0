"""Paths, remote files, local copies, errors and trackables as TensorFlow has them.

May import `planning` and below.
"""
