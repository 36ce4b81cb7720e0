"""State of the program besides the variables of models: iterators, random generators, closures.

May import `live/objects` and below.
"""
