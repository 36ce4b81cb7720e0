"""The state of a training that is no variable: callbacks, `History`, the position in the data.

May import `manager` and below, not the callback.
"""
