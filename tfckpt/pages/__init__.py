"""HTML pages about a run, a checkpoint, a difference, a plan: one file each, without a network.

Tables are written as HTML, so that they need no script; the scripts in `assets/` fold, sort, search
and draw. May import all but the callbacks and the command line.
"""
