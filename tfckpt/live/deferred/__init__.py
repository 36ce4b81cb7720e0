"""Values that are created after a restore, and the status that reports them.

May import `live/saving` and below.
"""
