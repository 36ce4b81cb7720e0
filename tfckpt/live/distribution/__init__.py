"""The workers of a strategy, and how they coordinate.

May import `live/program_state` and below.
"""
