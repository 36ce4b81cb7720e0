"""Which rules say what to keep: those of a config, or given one by one with ``--keep``."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from tfckpt.cli.command import Misuse
from tfckpt.manager.arguments import rules
from tfckpt.policy import load_config

if TYPE_CHECKING:
    from tfckpt.cli.command import Given
    from tfckpt.policy import Keep


def rules_of(given: Given) -> tuple[Keep, ...]:
    """The rules; () where none are given.

    Raises:
        Misuse: one is none, or there are both.
        PolicyError: the config is wrong.
    """
    file, texts = given.text("config"), given.texts("keep")
    if file is not None and texts:
        raise Misuse("--config has its own rules; give it or --keep")
    if file is not None:
        manager = load_config(file).manager
        if manager is None or not manager.rules:
            raise Misuse(f"{file} has no rules of what to keep, under manager: keep:")
        return manager.rules
    try:
        return rules(None, None, [_rule(text) for text in texts])
    except ValueError as error:
        raise Misuse(f"--{error}") from None


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
            raise Misuse(f"--keep {text!r} is no rule; best=2,monitor=loss,mode=min is one")
    return rule


def _number(text: str) -> Any:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text.strip()
