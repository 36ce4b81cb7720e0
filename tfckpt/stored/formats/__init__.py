"""Formats: each is opened and its values are named, in one way for all that follows.

May import `stored/commits` and below.
"""
