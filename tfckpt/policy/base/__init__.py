"""What the models of a config are made of, and what is said of a mistake in one.

May import `core` and errors.
"""
