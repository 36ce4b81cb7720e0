"""Log messages of the drop-in classes, for callers who use no policy and print no report.

``Checkpoint.restore`` takes no policy. Where a policy would help, on a refusal or when values were
left out, the message shows the equivalent call of ``tfckpt.restore`` with the same objects.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from keyword import iskeyword
from textwrap import indent
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from absl import logging

from tfckpt.core.names import MODEL
from tfckpt.core.text import WIDTH
from tfckpt.errors import RefusedError, RestoreError
from tfckpt.live.inventory import is_model
from tfckpt.planning.checks.step import SAVE_COUNTER
from tfckpt.planning.left_out import (
    layers_in_part,
    missing,
    slots_by_number,
    weights_left_out,
)
from tfckpt.planning.report import render_text
from tfckpt.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfckpt.core.inventory import Inventory
    from tfckpt.live.inventory import Live
    from tfckpt.live.restore import Prepared
    from tfckpt.live.status import LoadStatus
    from tfckpt.planning import Plan
    from tfckpt.planning.suggested import Suggestion

_WITHOUT_COUNTER = Policy(name="strict", api="read")
_KEEPS_SETTINGS = {"optimizer": {"hyperparameters": "config"}}


@dataclasses.dataclass(frozen=True)
class PolicyCall:
    """The call that restores the same into the same objects with a policy.

    ``start_over`` if it takes this argument, and then restores nothing.
    """

    function: str
    arguments: tuple[str, ...]
    start_over: bool = False

    @classmethod
    def of(cls, prefix: str, objects: Mapping[str, Any], root: Any) -> PolicyCall:
        """From the arguments of the drop-in class."""
        model = ["model"] if is_model(root) else []
        # The children of a root that is not a model have the same names as keywords.
        below = [] if root is None or model else tf.train.TrackableView.children(root)
        keywords = [each for each in (*objects, *below) if each != SAVE_COUNTER]
        named = [f"{each}={each}" for each in keywords if each.isidentifier()]
        others = ["**objects"] if len(named) < len(keywords) else []
        return cls("tfckpt.restore", (repr(prefix), *model, *named, *others))

    def with_argument(self, argument: str) -> str:
        """The call with one more argument."""
        return f"{self.function}({', '.join([*self.arguments, argument])})"

    def by(self, keys: Mapping[str, Any], width: int = WIDTH - 4) -> str:
        """The call with keys of a policy, as Python; a long one has a line for each argument.

        >>> call = PolicyCall("tfckpt.restore", ("'runs/ckpt-3'", "model=model"))
        >>> print(call.by({"exclude": ["model/head/**"]}))
        tfckpt.restore('runs/ckpt-3', model=model, exclude=["model/head/**"])
        """
        given = [(f"{key}_=" if iskeyword(key) else f"{key}=", keys[key]) for key in keys]
        if self.start_over and "include" in keys:  # another argument of this function
            given = [("policy=", dict(keys))]
        texts = [start + _python(value) for start, value in given]
        if len(one := self.with_argument(", ".join(texts))) <= width:
            return one
        lines = [f"    {text}," for text in self.arguments]
        for (start, value), text in zip(given, texts, strict=True):
            if len(text) <= WIDTH - 9 or not isinstance(value, (list, tuple)):
                lines.append(f"    {text},")
            else:
                each = (f"        {_python(one)}," for one in value)
                lines += [f"    {start}[", *each, "    ],"]
        return "\n".join([f"{self.function}(", *lines, ")"])

    def in_line(self, keys: Mapping[str, Any]) -> str:
        """The same for a log, in one line."""
        return self.by(keys, sys.maxsize)


def _python(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)}: {_python(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_python, value)) + "]"
    if not isinstance(value, str):
        return repr(value)
    raw = "\\" in value and value.isprintable() and '"' not in value and value[-1] != "\\"
    return f'r"{value}"' if raw else json.dumps(value, ensure_ascii=False)


@contextlib.contextmanager
def adding_advice(call: PolicyCall) -> Iterator[None]:
    """Add the call that takes a policy to errors that suggest one."""
    try:
        yield
    except RestoreError as error:
        found = _suggested(error.plan) if isinstance(error, RefusedError) else None
        if isinstance(error, RefusedError) and found is not None:
            text = "\n".join(found.lines(lambda each: call.by(each.keys)))
            error.args = (f"nothing was restored\n{render_text(error.plan, found)}\n\n{text}",)
        elif isinstance(error, RefusedError) or "policy" in error.hint:
            advice = f"to restore with a policy, call `{call.with_argument('policy=…')}`"
            error.hint = f"{error.hint}\n  {advice}".strip()
            error.args = (f"{error}\n  {advice}",)
        raise


@contextlib.contextmanager
def adding_call(call: PolicyCall | None) -> Iterator[None]:
    """Add the call that restores by the suggested policy, for callers without a config."""
    try:
        yield
    except RefusedError as error:
        found = error.plan.suggestion
        if call is not None and found is not None and found.policy is not None:
            code = indent(call.by(found.keys), "    ")
            error.args = (f"{error}\n\nin Python:\n\n{code}",)
        elif call is not None and call.start_over and found is None:
            error.args = (
                f"{error}\n\nto train this model from the start, choose another directory, or:\n\n"
                f"    {call.with_argument('start_over=True')}",
            )
        raise


def _suggested(plan: Plan) -> Suggestion | None:
    """What :func:`tfckpt.restore` would need, which takes nothing for granted."""
    return plan.suggest(policy=_WITHOUT_COUNTER) if plan.suggest is not None else None


def log_restore(status: LoadStatus, call: PolicyCall, logged: set[str], *, returned: bool) -> None:
    """Log what a restore replaced and what it left out.

    Texts in ``logged`` are not repeated, and new ones are added. ``returned`` is whether the caller
    gets the status and can assert on it.
    """
    report = status.report
    if report.replaced:
        keeps = call.in_line(_KEEPS_SETTINGS)
        logging.warning("%s: %s: `%s`", report.path, report.replacements, keeps)
    waiting = status.waiting
    if left := weights_left_out(report.plan, waiting):
        found = _suggested(report.plan)
        policy = found.keys if found and found.policy else None
        more = call.in_line(policy) if policy else call.with_argument("rename=[…]")
        advice = (
            f". To restore more: `{more}`. To fail when a value is missing: "
            "`checkpoint.restore(…).assert_existing_objects_matched()`"
        )
        log_once(logged, report.path, left, advice)
    elif (left := layers_in_part(report.plan, waiting)) or (left := slots_by_number(report.plan)):
        log_once(logged, report.path, left)
    elif not returned and (text := missing(report.plan)):
        log_once(logged, report.path, text)


def other_keyword(prepared: Prepared) -> str:
    """What to say where the only model was saved under another keyword."""
    saved, live = (_lone_model(side) for side in (prepared.stored.inventory, prepared.live))
    if not saved or not live or saved == live:
        return ""
    return (
        f"the model was saved as `{saved}=` and restored as `{live}=`, since it is the only model "
        "in the checkpoint and among the objects given; TensorFlow restores nothing here"
    )


def log_once(logged: set[str], path: str, text: str, advice: str = "") -> None:
    """Log a text unless it was logged before: an evaluation restores hundreds of checkpoints."""
    if text and text not in logged:
        logged.add(text)
        logging.warning("%s: %s%s", path, text, advice)


def _lone_model(side: Inventory | Live) -> str:
    """The keyword of the only model; "" if there are several, or it has no keyword."""
    keywords = [k for k, root in side.roots.items() if root.kind == root.component == MODEL]
    return keywords[0] if len(keywords) == 1 else ""
