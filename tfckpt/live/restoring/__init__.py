"""One restore: the plan is made, values are read and checked, then assigned, all or none.

May import `live/building` and below.
"""
