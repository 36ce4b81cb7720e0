"""Command-line arguments: flags, and the checkpoint, model or policy that an argument names.

May import everything below the command line.
"""
