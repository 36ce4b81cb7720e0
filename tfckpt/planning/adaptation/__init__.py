"""The `adapt` rules, by shape and dtype alone: slices, resizes, casts, functions.

May import `matching` and below.
"""
