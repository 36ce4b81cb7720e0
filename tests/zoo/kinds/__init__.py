"""The table of kinds: models and agents that are restored before anything of them is called.

``conformance/test_restored_before_built.py`` measures and asserts it. A program takes three steps,
saves, and takes two more. Then its objects are made anew, under another seed and as in a new
process, and restored before a step; they take the last two.
A cell says what came of it:

- ``exact``: after the restore, every value that there is has the bits of the saved one, none is
  missing, and after two steps all are those of the whole run;
- ``waits``: the same at the end, but some values came with the first step;
- ``refused``: nothing was restored, and the error has the reason of the row;
- ``differs``: the values that the row names are other ones at the end, and no others;
- ``WRONG``: anything else.

Values are found by TensorFlow's own walk over what a checkpoint tracks, and by Keras's lists.
"""
