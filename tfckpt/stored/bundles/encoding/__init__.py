"""The binary encoding of a bundle: protobuf messages, the index table, checksums.

May import `stored/paths` and below.
"""
