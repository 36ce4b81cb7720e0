"""Output of commands: tables, progress bars, HTML pages.

May import `cli/arguments`.
"""
