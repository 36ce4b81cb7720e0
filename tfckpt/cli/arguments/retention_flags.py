"""Which rules say what to keep: those of a config, or given one by one with ``--keep``."""

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
    """The rules; () where none are given.

    Raises:
        UsageError: one is none, or there are both.
        PolicyError: the config is wrong.
    """
    file, texts = arguments.text("config"), arguments.texts("keep")
    if file is not None and texts:
        raise UsageError("--config has its own rules; give it or --keep")
    if file is not None:
        manager = load_config(file).manager
        if manager is None or not manager.rules:
            raise UsageError(f"{file} has no rules of what to keep, under manager: keep:")
        return manager.rules
    try:
        return rules(None, None, [_rule(text) for text in texts])
    except ValueError as error:
        raise UsageError(f"--{error}") from None


def check_rules(
    path: str, rules: Iterable[Keep], directory: Directory, named: Iterable[ListedCheckpoint]
) -> None:
    """Refuse rules that keep nothing in particular, which is rarely what was meant.

    Args:
        path: of the directory, for messages.
        rules: what is kept.
        directory: what the rules are about.
        named: the checkpoints that a pin must name one of; () for a config, which may name others.

    Raises:
        UsageError: no checkpoint has what a rule goes by.
    """
    saved = directory.saved(directory.checkpoints())
    numbers = {one.number for one in named}
    for rule in rules:
        if reason := idle(rule, saved):
            raise UsageError(f"{path}: nothing is deleted: {reason}")
        if numbers and (absent := [n for n in rule.pin or () if n not in numbers]):
            there = ", ".join(str(number) for number in sorted(n for n in numbers if n is not None))
            raise UsageError(f"{path} has no checkpoint {absent[0]} to pin, but {there}")


def _rule(text: str) -> dict[str, Any]:
    """``best=2,monitor=val_loss,mode=min``, and ``pin=3,7``.

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
            raise UsageError(f"--keep {text!r} is no rule; best=2,monitor=loss,mode=min is one")
    return rule


def _number(text: str) -> Any:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text.strip()
