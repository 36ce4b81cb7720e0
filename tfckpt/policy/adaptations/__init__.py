"""The kinds of `adapt` rules: each class says what a rule may contain, what it makes, and how.

May import `policy/base` and below; NumPy only where values are changed.
"""
