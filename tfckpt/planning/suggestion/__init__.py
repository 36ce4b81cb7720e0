"""From a refused plan to the fewest lines of policy that restore all that can be restored.

Pure: no file is read. May import `planning` and below.
"""

from tfckpt.planning.suggestion.search import suggest

__all__ = ["suggest"]
