"""Whether matched values fit, and what to report about values without a match.

May import `adaptation` and below.
"""
