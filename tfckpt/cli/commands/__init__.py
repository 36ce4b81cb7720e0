"""One module for each command: it reads the arguments, calls the library, prints the result.

May import `cli/output` and `cli/arguments`.
"""
