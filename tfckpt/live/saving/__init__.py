"""One save: a snapshot of the values, the files, the commit, in the foreground or background.

May import `live/restoring` and below.
"""
