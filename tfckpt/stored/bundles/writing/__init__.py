"""Writes bundles without TensorFlow, one value at a time or several files in parallel.

May import `stored/bundles`.
"""
