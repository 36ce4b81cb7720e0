"""Bundles written without TensorFlow, one value or many at a time.

May import `stored/bundles`.
"""
