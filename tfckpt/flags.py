"""A config as a flag of a program that runs under ``absl.app``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, overload

from absl import flags

from tfckpt.errors import PolicyError
from tfckpt.policy import Config, load_config

flags.disclaim_key_flags()  # so that --help shows them as flags of the program
_Source = str | os.PathLike[str] | Mapping[str, Any]


class _ConfigParser(flags.ArgumentParser):  # type: ignore[misc]
    syntactic_help = "a YAML file"

    def parse(self, argument: Any) -> Any:
        return argument if isinstance(argument, Mapping) else os.fspath(argument)

    def flag_type(self) -> str:
        return "tfckpt config"


class _ConfigFlag(flags.Flag):  # type: ignore[misc]
    """A flag whose value is the checked config; while it is not valid, what was written."""

    def __init__(self, name: str, default: Any, text: str, changes: flags.Flag[Any]) -> None:
        self._changes = changes
        self._loaded: tuple[Any, Config | None, str] = (None, None, "")
        super().__init__(_ConfigParser(), None, name, default, text)

    @property
    def value(self) -> Any:
        return self.load()[1] or self._value

    @value.setter
    def value(self, value: Any) -> None:
        self._value = value

    def load(self) -> tuple[Any, Config | None, str]:
        """What was written, its config, and the error that it has."""
        written = (self._value, tuple(self._changes.value or ()))
        if self._value is not None and self._loaded[0] != written:
            said = {text: f"--{self._changes.name}={text}" for text in written[1]}
            try:
                self._loaded = (written, load_config(self._value, changes=said), "")
            except PolicyError as error:
                self._loaded = (written, None, str(error))
        return self._loaded if self._value is not None else (None, None, "")

    def serialize(self) -> str:
        return f"--{self.name}={self._value}" if isinstance(self._value, str) else ""

    def _serialize_value_for_xml(self, value: Any) -> str:
        return str(self._value)


@overload
def DEFINE_config(
    name: str, default: _Source, help: str = ..., flag_values: flags.FlagValues = ...
) -> flags.FlagHolder[Config]: ...
@overload
def DEFINE_config(
    name: str, default: None = None, help: str = ..., flag_values: flags.FlagValues = ...
) -> flags.FlagHolder[Config | None]: ...
def DEFINE_config(  # noqa: N802 - as absl calls its own
    name: str,
    default: _Source | None = None,
    help: str = "tfckpt config",  # noqa: A002 - as absl calls it
    flag_values: flags.FlagValues = flags.FLAGS,
) -> flags.FlagHolder[Any]:
    """Define ``--NAME=FILE``, a config, and ``--NAME_set=KEY=VALUE``, which changes a key of it.

    The second may be given several times; its values are YAML:
    ``--checkpoint_set=restore.path=zoo/ckpt-9 --checkpoint_set=manager.keep[0].latest=2``. Both are
    checked when flags are parsed; an error names the flag, or the line of the file.

    Args:
        name: of the flag; its value is for :func:`tfckpt.from_config` or :func:`tfckpt.restore`.
        default: a file, its content as a mapping, or None for no config.
        help: what ``--help`` says.
        flag_values: where the flag is registered.

    >>> import tensorflow as tf, tfckpt
    >>> from absl import flags
    >>> known = flags.FlagValues()
    >>> nothing = {"version": 1, "manager": {"directory": "runs/a"}}
    >>> _ = tfckpt.flags.DEFINE_config("checkpoint", nothing, flag_values=known)
    >>> _ = known(["train.py", "--checkpoint_set=manager.directory=runs/b"])
    >>> tfckpt.from_config(known.checkpoint, step=tf.Variable(0)).manager.directory
    'runs/b'
    """
    what = f"KEY=VALUE of --{name}: restore.path=zoo/ckpt-9, restore.first_of[1].path=zoo/ckpt-9"
    changes = flags.DEFINE_multi_string(f"{name}_set", None, what, flag_values)
    flag = _ConfigFlag(name, default, help, flag_values[changes.name])
    holder: flags.FlagHolder[Any] = flags.DEFINE_flag(flag, flag_values)

    def is_valid(_: Any) -> bool:
        if error := flag.load()[2]:
            raise flags.ValidationError(error)
        return True

    flags.register_validator(name, is_valid, flag_values=flag_values)
    return holder
