"""What tfckpt costs beside TensorFlow and what the machine can do, measured in one run.

``make bench``, or ``python -m benchmarks``, prints one table. Who is compared takes turns, each
round in another order, after a round that does not count; medians are shown. Each workload runs in
a process of its own, forked from one that has imported TensorFlow and run nothing.

- ``measure``: turns, processes, rows of the table
- ``subjects``: what is saved; ``saves``: saves and restores of it, and background saves
- ``names``: naming and planning, by the value; ``starts``: commands, and trainings that go on
"""
