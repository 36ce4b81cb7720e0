"""A run by config, the functions that do the same for once, and a callback without a config."""

from tfckpt.run.core import Run, from_config, inventory, plan, restore
from tfckpt.run.fit import resume

__all__ = ["Run", "from_config", "inventory", "plan", "restore", "resume"]
