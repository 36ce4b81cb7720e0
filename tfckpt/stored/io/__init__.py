"""Files, threads and disk space, for everything in `stored`.

Imports nothing else of `stored`.
"""
