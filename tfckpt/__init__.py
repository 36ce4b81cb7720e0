"""Checkpoints for TensorFlow and Keras that restore exactly what was asked, or refuse.

Start with :class:`Checkpoint` and :class:`CheckpointManager`, drop-in replacements of TensorFlow's,
or with :func:`from_config`, which saves and restores as a YAML file says. Importing tfckpt does not
import TensorFlow; the names that need it are loaded on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tfckpt.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    CoverageError,
    DamagedCheckpointError,
    InUseError,
    NameTakenError,
    NamingError,
    NotBuiltError,
    NotInstalledError,
    PolicyError,
    RefusedError,
    RestoreError,
    SaveError,
    StatusAssertionError,
    TfckptError,
    UnsupportedCheckpointError,
    UntrackedError,
)
from tfckpt.version import __version__ as __version__

if TYPE_CHECKING:
    from tfckpt import callbacks, flags
    from tfckpt.calls import from_config, inventory, plan, restore, suggest
    from tfckpt.core.inventory import Entry, Inventory, Role
    from tfckpt.live.adapt import register_adaptation
    from tfckpt.live.checkpoint import Checkpoint
    from tfckpt.manager.checkpoint_manager import CheckpointManager
    from tfckpt.manager.directory import SaveReport
    from tfckpt.pages.run_page import report_page
    from tfckpt.planning import Plan, RestoreReport, Status
    from tfckpt.policy import Policy
    from tfckpt.run import Run
    from tfckpt.tools.comparison import diff
    from tfckpt.tools.doctor import doctor
    from tfckpt.tools.export import export
    from tfckpt.tools.inspection import inspect
    from tfckpt.tools.listing import checkpoints_iterator, list_checkpoints
    from tfckpt.tools.verification import verify

_LAZY = {
    "Checkpoint": "tfckpt.live.checkpoint",
    "CheckpointManager": "tfckpt.manager.checkpoint_manager",
    "Entry": "tfckpt.core.inventory",
    "Inventory": "tfckpt.core.inventory",
    "Plan": "tfckpt.planning",
    "Policy": "tfckpt.policy",
    "RestoreReport": "tfckpt.planning",
    "Role": "tfckpt.core.inventory",
    "Run": "tfckpt.run",
    "SaveReport": "tfckpt.manager.directory",
    "Status": "tfckpt.planning",
    "checkpoints_iterator": "tfckpt.tools.listing",
    "diff": "tfckpt.tools.comparison",
    "doctor": "tfckpt.tools.doctor",
    "export": "tfckpt.tools.export",
    "from_config": "tfckpt.calls",
    "inspect": "tfckpt.tools.inspection",
    "inventory": "tfckpt.calls",
    "list_checkpoints": "tfckpt.tools.listing",
    "plan": "tfckpt.calls",
    "register_adaptation": "tfckpt.live.adapt",
    "report_page": "tfckpt.pages.run_page",
    "restore": "tfckpt.calls",
    "suggest": "tfckpt.calls",
    "verify": "tfckpt.tools.verification",
}

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "CheckpointManager",
    "CheckpointNotFoundError",
    "CoverageError",
    "DamagedCheckpointError",
    "Entry",
    "InUseError",
    "Inventory",
    "NameTakenError",
    "NamingError",
    "NotBuiltError",
    "NotInstalledError",
    "Plan",
    "Policy",
    "PolicyError",
    "RefusedError",
    "RestoreError",
    "RestoreReport",
    "Role",
    "Run",
    "SaveError",
    "SaveReport",
    "Status",
    "StatusAssertionError",
    "TfckptError",
    "UnsupportedCheckpointError",
    "UntrackedError",
    "callbacks",
    "checkpoints_iterator",
    "diff",
    "doctor",
    "export",
    "flags",
    "from_config",
    "inspect",
    "inventory",
    "list_checkpoints",
    "plan",
    "register_adaptation",
    "report_page",
    "restore",
    "suggest",
    "verify",
]


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> Any:
        if name in ("callbacks", "flags"):
            return importlib.import_module(f"tfckpt.{name}")
        if name not in _LAZY:
            raise AttributeError(_unknown(name), name=None, obj=None)
        value = globals()[name] = getattr(importlib.import_module(_LAZY[name]), name)
        return value


# Names of other libraries, by their first word: `load_weights`, `save_model`.
_OTHER_LIBRARIES = {"load": ["restore"], "save": ["Checkpoint"]}


def _unknown(name: str) -> str:
    from tfckpt.core.similar import near_words, question

    meant = question(near_words(name, __all__) or _OTHER_LIBRARIES.get(name.partition("_")[0], ()))
    return f"module {__name__!r} has no attribute {name!r}{meant and f'; {meant}'}"


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__"})
