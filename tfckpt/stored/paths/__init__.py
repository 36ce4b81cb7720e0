"""What a path may mean, and what lies where no checkpoint is.

May import `stored/io`.
"""
