"""Objects without variables: building them before a restore, and their initial values.

May import `live/distribution` and below.
"""
