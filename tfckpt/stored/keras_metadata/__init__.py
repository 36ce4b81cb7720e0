"""Keras's metadata: configurations, bookkeeping lists, the order of a layer's variables.

May import `stored/bundles` and below.
"""
