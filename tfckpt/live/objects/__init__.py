"""Live objects as one inventory: the tree, its names, and the variables behind them.

May import `live/variables` and below.
"""
