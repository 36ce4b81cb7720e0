"""One module for each command: it parses, calls the library, shows the result.

May import `cli/output` and `cli/arguments`.
"""
