"""A policy that was found for a refused plan: its lines, what they restore, what they leave."""

from __future__ import annotations

import dataclasses
import json
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from tfckpt.core.text import WIDTH, printable, wrap
from tfckpt.planning.checks.step import ASSIGNED, is_save_counter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfckpt.planning.plan import Plan
    from tfckpt.policy import Policy

_SHOWN = 5
_PLAIN = re.compile(r"[A-Za-z_]+|0|[1-9][0-9]*")


class Candidates(NamedTuple):
    """A layer of the model that may be one of several, or none, of the checkpoint.

    Or a value that may have been kept in one of several ways.

    Attributes:
        live: its path.
        stored: the paths that it may have in the checkpoint.
        evidence: what is known of them.
        rename: the rule, as (checkpoint, model), that says that it is the first of them.
        adapt: each way, in words, and the rules that it needs; () where it is open which layer.
    """

    live: str
    stored: tuple[str, ...]
    evidence: str
    rename: tuple[str, str]
    adapt: tuple[tuple[str, tuple[Mapping[str, Any], ...]], ...] = ()

    @property
    def question(self) -> str:
        fits = " or ".join(self.stored[:_SHOWN])
        return f"{self.live} may be {fits}{'' if self.adapt else ', or new'}: {self.evidence}"

    @property
    def answers(self) -> list[str]:
        """Each with what it adds to the policy."""
        if self.adapt:
            return [
                f"if {how}: " + (f"adapt: {_flow(rules)}" if rules else "nothing more")
                for how, rules in self.adapt
            ]
        old, new = map(_flow, self.rename)
        return [
            f"if they are the same: rename: [{{checkpoint: {old}, model: {new}}}]",
            f'if it is new: exclude: ["{self.live}/**"]',
        ]

    def to_json(self) -> dict[str, Any]:
        old, new = self.rename
        return {
            "model": self.live,
            "checkpoint": list(self.stored),
            "evidence": self.evidence,
            "rename": {"checkpoint": old, "model": new},
        }


@dataclasses.dataclass(frozen=True)
class Suggestion:
    """What a person could write so that a refused restore is carried out.

    Attributes:
        changes: the keys of the policy to add or change, as in a config.
        policy: the whole policy; None if a person must decide something first.
        plan: its plan; None without a policy.
        choices: what must be decided.
        left: what the policy leaves as it is, in words.
        gave_up: why not everything was tried; ``""`` if it was.
    """

    changes: Mapping[str, Any]
    policy: Policy | None = None
    plan: Plan | None = None
    choices: tuple[Candidates, ...] = ()
    left: str = ""
    gave_up: str = ""

    @property
    def lead(self) -> str:
        """What the lines do, in one sentence."""
        if self.plan is None:
            how = all(choice.adapt for choice in self.choices)
            what = "how values were kept" if how else "which layer is which"
            return self.gave_up or f"a policy can restore it once you decide {what}:"
        live = [s for s in self.plan.steps if s.live is not None and not is_save_counter(s.live)]
        restored = sum(step.status in ASSIGNED for step in live)
        count = f"{restored:,} of {len(live):,} values"
        left = f"; {self.left}" if self.left else ""
        return f"this policy restores {count}{left}:"

    @cached_property
    def yaml(self) -> str:
        """The changed keys of the policy, to paste into a config."""
        return "\n".join(_yaml_lines(self.changes))

    @property
    def python(self) -> str:
        """The changed keys of the policy as a dict."""
        pairs = (f"{json.dumps(key)}: {_python(value)}" for key, value in self.changes.items())
        return f"{{{', '.join(pairs)}}}"

    def __str__(self) -> str:
        return "\n".join(self.lines(self.yaml))

    def lines(self, code: str) -> list[str]:
        """The lead and the code, or what must be decided."""
        found = wrap(self.lead, "") if self.lead else []
        if self.plan is not None or self.changes:
            found += ["", *(f"    {line}" for line in code.split("\n"))]
        if self.choices:
            found += ["", *self._decisions()]
        return [printable(line) for line in found]

    def _decisions(self) -> list[str]:
        lines = []
        for choice in self.choices[:_SHOWN]:
            lines += wrap(choice.question, "  ")
        if more := len(self.choices) - _SHOWN:
            lines += [f"  … and {more:,} more"] * (more > 0)
        return [*lines, *(f"    → {answer}" for answer in self.choices[0].answers)]


def _yaml_lines(changes: Mapping[str, Any]) -> list[str]:
    lines = []
    for key, value in changes.items():
        line = f"{key}: {_flow(value)}"
        if len(line) <= WIDTH - 8 or not isinstance(value, (list, tuple)):
            lines.append(line)
        else:
            lines += [f"{key}:", *(f"  - {_flow(each)}" for each in value)]
    return lines


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_flow, value)) + "]"
    text = str(value)
    if not isinstance(value, str) or _PLAIN.fullmatch(text):
        return text
    return f"'{text}'" if "\\" in text else json.dumps(text, ensure_ascii=False)


def _python(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)}: {_python(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_python, value)) + "]"
    return repr(value) if not isinstance(value, str) else _quoted(value)


def _quoted(text: str) -> str:
    return f'r"{text}"' if "\\" in text else json.dumps(text, ensure_ascii=False)
