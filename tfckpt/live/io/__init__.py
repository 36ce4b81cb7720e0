"""Paths, remote files, errors and trackables as TensorFlow has them.

May import `planning` and below.
"""
