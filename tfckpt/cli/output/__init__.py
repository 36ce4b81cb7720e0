"""Output of commands: tables and progress bars.

May import `cli/arguments`.
"""
