"""What was declared: configs and policies, from YAML or from Python."""

from tfckpt.policy.config import STRICT, Config, Latest, Restore, Source
from tfckpt.policy.load import load_config, load_policy
from tfckpt.policy.model import InputSpec, OptimizerRules, Policy, Rename
from tfckpt.policy.saving import Keep, Manager, Save
from tfckpt.policy.schema import schema

__all__ = [
    "STRICT",
    "Config",
    "InputSpec",
    "Keep",
    "Latest",
    "Manager",
    "OptimizerRules",
    "Policy",
    "Rename",
    "Restore",
    "Save",
    "Source",
    "load_config",
    "load_policy",
    "schema",
]
