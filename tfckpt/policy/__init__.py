"""Configs and policies, from YAML or from Python.

Imports ``core`` and ``errors`` only.
"""

from tfckpt.policy.config import STRICT, Config, Latest, OnlySource, Restore, Source
from tfckpt.policy.load import load_config, load_policy
from tfckpt.policy.manager import Keep, Manager, Save
from tfckpt.policy.policy import InputSpec, OptimizerRules, Policy, Rename

__all__ = [
    "STRICT",
    "Config",
    "InputSpec",
    "Keep",
    "Latest",
    "Manager",
    "OnlySource",
    "OptimizerRules",
    "Policy",
    "Rename",
    "Restore",
    "Save",
    "Source",
    "load_config",
    "load_policy",
]
