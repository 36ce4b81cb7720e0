"""The workers of a strategy, and how they come to agree.

May import `live/program_state` and below.
"""
