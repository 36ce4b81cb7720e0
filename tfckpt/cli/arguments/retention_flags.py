"""Retention rules from ``--config`` or ``--keep``."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from tfckpt.cli.arguments.command import UsageError
from tfckpt.manager.arguments import rules
from tfckpt.manager.remarks import idle
from tfckpt.policy import load_config

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfckpt.cli.arguments.command import Arguments
    from tfckpt.manager.directory import Directory
    from tfckpt.policy import Keep
    from tfckpt.stored.inspection.listing import ListedCheckpoint


def rules_of(arguments: Arguments) -> tuple[Keep, ...]:
    """The rules; () without either flag."""
    file, texts = arguments.text("config"), arguments.texts("keep")
    if file is not None and texts:
        raise UsageError("--config and --keep both set retention rules; use only one of them")
    if file is not None:
        manager = load_config(file).manager
        if manager is None or not manager.rules:
            raise UsageError(
                f"{file} has no retention rules; add them under manager: keep:, or use --keep"
            )
        return manager.rules
    try:
        return rules(None, None, [_rule(text) for text in texts])
    except ValueError as error:
        raise UsageError(f"--{error}") from None


def check_rules(
    path: str, rules: Iterable[Keep], directory: Directory, pinnable: Iterable[ListedCheckpoint]
) -> None:
    """Refuse rules that cannot apply to any checkpoint, which is rarely intended.

    Every pin must be the number of a ``pinnable`` checkpoint; if that is empty, as for a config,
    which may serve several directories, pins are not checked.
    """
    saved = directory.saved(directory.checkpoints())
    numbers = {checkpoint.number for checkpoint in pinnable}
    for rule in rules:
        if reason := idle(rule, saved):
            raise UsageError(f"{path}: nothing was deleted: {reason}")
        if numbers and (absent := [n for n in rule.pin or () if n not in numbers]):
            known = ", ".join(str(number) for number in sorted(n for n in numbers if n is not None))
            raise UsageError(f"{path} has no checkpoint {absent[0]} to pin; it has {known}")


def _rule(text: str) -> dict[str, Any]:
    """Parse ``best=2,monitor=val_loss,mode=min`` or ``pin=3,7``.

    >>> _rule("best=2,monitor=val_loss,mode=min"), _rule("pin=3,7")
    ({'best': 2, 'monitor': 'val_loss', 'mode': 'min'}, {'pin': [3, 7]})
    """
    rule: dict[str, Any] = {}
    key = ""
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals:
            key = name.strip()
            rule[key] = [_number(value)] if key == "pin" else _number(value)
        elif key == "pin":
            rule[key].append(_number(part))
        else:
            raise UsageError(
                f"--keep {text!r} is not a valid rule; use e.g. best=2,monitor=loss,mode=min"
            )
    return rule


def _number(text: str) -> Any:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text.strip()
