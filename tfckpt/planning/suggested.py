"""A policy that was found for a refused plan: its lines, what they restore, what they leave."""

from __future__ import annotations

import dataclasses
import json
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from tfckpt.core.text import FOLD, WIDTH, listed, printable, wrap
from tfckpt.planning.checks.step import ASSIGNED, is_save_counter
from tfckpt.policy import STRICT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tfckpt.planning.plan import Plan
    from tfckpt.policy import Policy

_PLAIN = re.compile(r"[A-Za-z_]+|0|[1-9][0-9]*")


class Candidates(NamedTuple):
    """A layer of the model that may be one of several, or none, of the checkpoint.

    Or a value that may have been kept in one of several ways.

    Attributes:
        live: its path.
        stored: the paths that it may have in the checkpoint.
        evidence: what is known of them.
        rename: the rule, as (checkpoint, model), that says that it is the first of them.
        ways: each answer, in words, and what it adds to the policy; () for that rule, or none.
    """

    live: str
    stored: tuple[str, ...]
    evidence: str
    rename: tuple[str, str]
    ways: tuple[tuple[str, Mapping[str, Any]], ...] = ()

    def question(self, live: Sequence[str]) -> str:
        """The question about it and others, ``live``, that have the same candidates."""
        fits = f"{'one of ' if len(self.stored) > 1 else ''}{listed(self.stored, FOLD)}"
        each, new = ": each" * (len(live) > 1), "" if self.ways else ", or new"
        return f"{listed(live)}{each} may be {fits} of the checkpoint{new}: {self.evidence}"

    def answers(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Each in words, and what it adds to the policy."""
        yield from self.ways
        old, new = self.rename
        if old != new and not self.ways:
            rule = {"checkpoint": old, "model": new}
            yield f"{self.live} is the checkpoint's {self.stored[0]}", {"rename": [rule]}
        if not self.ways:
            yield f"{self.live} is new", {"exclude": [f"{self.live}/**"]}


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
        by_names: the suggestion if layers with one name are the same; None if that is no answer.
    """

    changes: Mapping[str, Any]
    policy: Policy | None = None
    plan: Plan | None = None
    choices: tuple[Candidates, ...] = ()
    left: str = ""
    gave_up: str = ""
    by_names: Suggestion | None = None

    @property
    def lead(self) -> str:
        """What the lines do, in one sentence."""
        if self.plan is None:
            how = all(
                x.ways and all(w.keys() <= {"adapt"} for _, w in x.ways) for x in self.choices
            )
            what = "how values were kept" if how else "which layer is which"
            sure = "; this much is sure:" if self.changes else ":"
            return self.gave_up or f"a policy can restore it once you decide {what}{sure}"
        live = [s for s in self.plan.steps if s.live is not None and not is_save_counter(s.live)]
        restored = sum(step.status in ASSIGNED for step in live)
        count = f"{restored:,} of {len(live):,} values"
        left = f"; {self.left}" if self.left else ""
        if self._adds:
            return f"with this added, the policy restores {count}{left}:"
        return f"this policy restores {count}{left}:"

    @property
    def _adds(self) -> bool:
        """Whether somebody wrote a policy that has other rules than the changed ones."""
        written = self.policy is not None and self.policy.name != STRICT.name
        return written and any(
            len(self.changes.get(key, ())) < len(value)
            if isinstance(value, list)
            else key not in self.changes
            for key, value in self._whole.items()
        )

    @cached_property
    def yaml(self) -> str:
        """The changed keys of the policy, to paste into a config."""
        return "\n".join(_yaml_lines(self.changes))

    @property
    def python(self) -> str:
        """The whole policy as a dict."""
        return _python(self._whole if self._adds else dict(self.changes))

    @cached_property
    def _whole(self) -> dict[str, Any]:
        """The keys of the policy."""
        if self.policy is None:
            return {}
        return self.policy.model_dump(
            mode="json", by_alias=True, exclude_unset=True, exclude={"name"}
        )

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
        alike: dict[tuple[object, ...], list[Candidates]] = {}
        for choice in self.choices:
            alike.setdefault((choice.stored, choice.evidence), []).append(choice)
        lines = []
        for same in list(alike.values())[:FOLD]:
            lines += wrap(same[0].question([choice.live for choice in same]), "  ")
        if more := sum(map(len, list(alike.values())[FOLD:])):
            lines.append(f"  … and {more:,} more")
        if (named := self.by_names) is not None:
            left = f"; {named.left}" * bool(named.left)
            lines += self._answer(f"layers with the same name are the same{left}", named.changes)
        there = {path for choice in self.choices for path in choice.stored}
        new = (choice for choice in self.choices if choice.live not in there)
        for how, adds in next(new, self.choices[0]).answers():
            lines += self._answer(how, adds)
        return lines

    def _answer(self, how: str, adds: Mapping[str, Any]) -> list[str]:
        """An answer, and what it adds to the changes that are sure."""
        texts = []
        for key, value in adds.items():
            sure = self.changes.get(key)
            if sure is None:
                texts.append(f"{key}: {_flow(value)}")
            elif added := [each for each in value if each not in sure]:
                texts.append(f"add {', '.join(map(_flow, added))} to {key}")
        texts = texts or ["nothing more"]
        return [f"    → if {how}:", *(f"        {text}" for text in texts)]


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
