"""What commands show: tables, progress, HTML.

May import `cli/arguments`.
"""
