"""What can be said of any stored checkpoint: listing, statistics, checksums, verification.

May import everything of `stored`.
"""
