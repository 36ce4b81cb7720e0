"""From a refused plan to the policy that restores all that is certain, or to what must be decided.

Pure: no file is read. May import `planning` and below.
"""

from tfckpt.planning.suggestion.search import suggest

__all__ = ["suggest"]
