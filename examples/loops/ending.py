"""What two runs are compared by: the bits of everything that they trained."""

from __future__ import annotations

import hashlib
from typing import Any


def digest(*owners: Any) -> str:
    """Of the variables of models, optimizers and metrics."""
    found = hashlib.sha256()
    for owner in owners:
        for variable in owner.variables:
            found.update(variable.numpy().tobytes())
    return found.hexdigest()[:16]
