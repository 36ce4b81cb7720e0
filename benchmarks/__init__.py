"""What tfckpt costs beside TensorFlow and what the machine can do, measured in one run.

``make bench``, or ``python -m benchmarks``, prints one table, in less than ten minutes. Processor
time is that of all threads, which other programs disturb less than the clock. Who is compared takes
turns, each round in another order, after a round that does not count; medians are shown. Each
workload runs in a process of its own, forked from one that has imported TensorFlow and run nothing.

- ``measure``: turns, processes, rows of the table
- ``subjects``: what is saved; ``saves``: saves and restores of it, and background saves
- ``plans``: plans and refusals, by inventories; ``directories``: commands, and many checkpoints
"""
