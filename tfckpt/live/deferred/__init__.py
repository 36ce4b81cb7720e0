"""What comes to exist after a restore, and the status that knows of it.

May import `live/saving` and below.
"""
