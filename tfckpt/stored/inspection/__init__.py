"""Listing, statistics, checksums and verification of stored checkpoints.

May import everything of `stored`.
"""
