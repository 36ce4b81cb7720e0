"""Configs and policies, from YAML or from Python.

Imports ``core`` and ``errors`` only.
"""

from tfckpt.policy.config import STRICT, Config, Restore, Source
from tfckpt.policy.load import load_config, load_policy
from tfckpt.policy.manager import Keep, Manager, Save
from tfckpt.policy.policy import Policy

__all__ = [
    "STRICT",
    "Config",
    "Keep",
    "Manager",
    "Policy",
    "Restore",
    "Save",
    "Source",
    "load_config",
    "load_policy",
]
