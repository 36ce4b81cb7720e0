"""Live objects as one inventory: the object tree, its names, and the variables.

May import `live/variables` and below.
"""
