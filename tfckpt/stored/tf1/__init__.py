"""Checkpoints of TF1's ``Saver``, whose values are named from their keys."""
