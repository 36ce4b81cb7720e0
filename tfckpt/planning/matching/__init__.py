"""Which stored value goes into which live one, by name, structure and position.

May import `core`, `policy` and `stored`.
"""
