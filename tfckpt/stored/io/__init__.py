"""Files, object stores and disk space, used by all of `stored`.

Imports nothing else of `stored`.
"""
