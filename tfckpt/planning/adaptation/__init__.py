"""The rules of `adapt`, by shape and type alone: slices, resizes, casts, functions.

May import `matching` and below.
"""
