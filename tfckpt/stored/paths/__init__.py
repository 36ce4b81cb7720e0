"""What a path means, and what was found where no checkpoint is.

May import `stored/io`.
"""
