"""State of the program besides its variables: iterators, random generators, captured values.

May import `live/objects` and below.
"""
