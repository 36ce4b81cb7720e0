"""What the command line does, in Python: each command that reads or rewrites files is a call here.

May import everything but the callbacks and the command line. What needs TensorFlow or pydantic is
imported inside the functions that need it.
"""
