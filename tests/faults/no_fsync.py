"""Preloaded where processes are killed: fsync returns at once.

What a killed process leaves does not depend on it, and most of the time of a case would be waiting
for the disk. `preload.c` does the same below Python.
"""

import os


def _return_at_once(descriptor: int) -> None:
    os.fstat(descriptor)  # fails as fsync would where it is closed


os.fsync = _return_at_once
