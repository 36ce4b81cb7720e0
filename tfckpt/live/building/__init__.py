"""Objects without variables yet: built before a restore, and their starting values.

May import `live/distribution` and below.
"""
