"""The HTML page of a run: one file, without a network.

Picture and table are written as HTML, so that they need no script; the one in `assets/` sorts
and searches rows. May import all but the callbacks and the command line.
"""
