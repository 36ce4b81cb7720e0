"""What tfckpt costs beside everything else that saves and restores, measured in one run.

``make bench``, or ``python -m benchmarks``, runs all workloads and writes a page of tables, plots
and the raw numbers into ``benchmarks/results``. Who takes part in a workload takes turns, each
round in another order, after a round that does not count; medians and minima are shown. All
workloads run in processes of their own, forked from one that has imported TensorFlow and run
nothing.

- ``measure``: turns, processes, peaks of memory; ``machine``: where it ran
- ``subjects``: what is saved; ``contestants``, ``others``, ``limits``: what saves it
- ``saving``, ``first``, ``crowded``, ``tenth``, ``training``, ``busy``, ``planning``, ``startup``,
  ``rewrite``, ``retention``, ``resume``, ``going_on``, ``overhead``: the workloads
- ``restarts``: three ways to go on after an interruption
- ``goals``: what tfckpt wants to reach; ``report``, ``plots``: what is written
"""
