"""Which stored value goes into which live one, by names, structure and position.

May import `core`, `policy` and `stored`.
"""
