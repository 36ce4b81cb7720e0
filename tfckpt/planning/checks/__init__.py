"""Whether matched values fit, and what to say of those that were not matched.

May import `adaptation` and below.
"""
