"""One restore: plan, read, check, then assign all values or none.

May import `live/building` and below.
"""
