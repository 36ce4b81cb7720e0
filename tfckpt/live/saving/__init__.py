"""One save: snapshot, write files, commit, in the foreground or the background.

May import `live/restoring` and below.
"""
