"""Training state that is not in variables: callbacks, `History`, the position in the data.

May import `manager` and below, not the callback.
"""
