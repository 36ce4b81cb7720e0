"""The bytes of a bundle: protobuf, the index table, checksums.

May import `stored/paths` and below.
"""
