"""A policy that was found for a refused plan: its lines, what they restore, what they leave."""

from __future__ import annotations

import dataclasses
import itertools
import json
import operator
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from tfckpt.core.text import FOLD, WIDTH, collapse, listed, natural, printable, wrap
from tfckpt.planning.checks.step import ASSIGNED, is_save_counter
from tfckpt.policy import STRICT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tfckpt.planning.plan import Plan
    from tfckpt.policy import Policy

_SHOWN = 3
_MOST_LINES = 18  # of an answer
_PLAIN = re.compile(r"[A-Za-z_]+|0|[1-9][0-9]*")


class Candidates(NamedTuple):
    """A layer of the model that may be one of several, or none, of the checkpoint.

    Attributes:
        live: its path.
        stored: the paths that it may have in the checkpoint.
        evidence: what is known of them.
        may_be_new: whether it may be none of them.
    """

    live: str
    stored: tuple[str, ...]
    evidence: str
    may_be_new: bool = True

    def question(self, live: Sequence[str]) -> str:
        """The question about it and others, ``live``, that have the same candidates."""
        fits = f"{'one of ' if len(self.stored) > 1 else ''}{_ranges(self.stored)}"
        each, new = ": each" * (len(live) > 1), ", or new" * self.may_be_new
        return f"{_ranges(live)}{each} may be {fits} of the checkpoint{new}: {self.evidence}"


class Answer(NamedTuple):
    """An answer to all that must be decided, in words, and the policy that it makes possible."""

    words: str
    suggestion: Suggestion


@dataclasses.dataclass(frozen=True)
class Suggestion:
    """What a person could write so that a refused restore is carried out.

    Attributes:
        changes: the keys of the policy to add or change, as in a config.
        policy: the whole policy; None if a person must decide something first.
        plan: its plan; None without a policy.
        choices: what must be decided.
        answers: how it may be decided, each with the policy for all of it.
        left: what the policy leaves as it is, in words.
        gave_up: why no policy was found; ``""`` if that is no matter of effort.
    """

    changes: Mapping[str, Any]
    policy: Policy | None = None
    plan: Plan | None = None
    choices: tuple[Candidates, ...] = ()
    answers: tuple[Answer, ...] = ()
    left: str = ""
    gave_up: str = ""

    @property
    def lead(self) -> str:
        """What the lines do, in one sentence."""
        if self.plan is None:
            return self.gave_up or "a policy can restore it once you decide:"
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
    def keys(self) -> dict[str, Any]:
        """All keys of the policy, as a call takes them."""
        return self._whole if self._adds else dict(self.changes)

    @cached_property
    def _whole(self) -> dict[str, Any]:
        """The keys of the policy."""
        if self.policy is None:
            return {}
        return self.policy.model_dump(
            mode="json", by_alias=True, exclude_unset=True, exclude={"name"}
        )

    def __str__(self) -> str:
        return "\n".join(self.lines(operator.attrgetter("yaml")))

    def lines(self, code: Callable[[Suggestion], str]) -> list[str]:
        """The lead and the code, or what must be decided."""
        found = wrap(self.lead, "") if self.lead else []
        if self.plan is not None:
            found += ["", *(f"    {line}" for line in code(self).split("\n"))]
        if self.choices:
            found += ["", *self._decisions(code)]
        return [printable(line) for line in found]

    def _decisions(self, code: Callable[[Suggestion], str]) -> Iterator[str]:
        groups = itertools.groupby(self.choices, key=lambda choice: choice[1:])
        alike = [list(choices) for _, choices in groups]
        for same in alike[:FOLD]:
            yield from wrap(same[0].question([choice.live for choice in same]), "  ")
        if more := sum(map(len, alike[FOLD:])):
            yield f"  … and {more:,} more"
        for words, found in self.answers:
            lines = code(found).split("\n")
            if len(lines) <= _MOST_LINES:
                left = f"; {found.left}" * bool(found.left)
                yield from wrap(f"→ if {words}{left}:", "    ")
                yield from (f"        {line}" for line in lines)


def which_is_which(pairs: Sequence[tuple[str, str]]) -> str:
    """An answer in words: stored and live layers that are the same.

    >>> which_is_which([("model/x", "model/a")]), which_is_which([])
    ("model/a is the checkpoint's model/x", 'nothing of these is the same')
    >>> which_is_which([(f"model/b{n}", f"model/b{n}") for n in range(9)])
    "model/b{0…8} are the checkpoint's of the same names"
    """
    if not pairs:
        return "nothing of these is the same"
    olds, news = zip(*sorted(pairs, key=lambda pair: natural(pair[1])), strict=True)
    if olds == news and len(pairs) > 1:
        return f"{_ranges(news)} are the checkpoint's of the same names"
    if len(pairs) >= _SHOWN and [*olds] == sorted(olds, key=natural):
        return f"{_ranges(news)} are the checkpoint's {_ranges(olds)}, in this order"
    return listed([f"{live} is the checkpoint's {stored}" for stored, live in pairs])


def _ranges(names: Sequence[str], most: int = _SHOWN) -> str:
    """Names, numbered ones together.

    >>> _ranges(["model/dense", "model/dense_1", "model/dense_2", "model/out"])
    'model/dense, model/dense_{1…2}, model/out'
    """
    blocks = collapse(names)
    hidden = sum(block.count for block in blocks[most:])
    return ", ".join(block.text for block in blocks[:most]) + f" and {hidden:,} more" * bool(hidden)


def leaving(new: Sequence[str], left: Sequence[str], plan: Plan, keys: Mapping[str, Any]) -> str:
    """What is left of the model and of the checkpoint, layers by their paths, in words."""
    said = [f"{_ranges(new)} {'stays' if len(new) == 1 else 'stay'} new"] * bool(new)
    if left:
        verb = "is" if len(left) == 1 else "are"
        said.append(f"{_ranges(left)} of the checkpoint {verb} left out")
    tables = (s.name for s in plan.errors if s.stored and s.live and s.name.endswith("/embeddings"))
    said += [
        f"of {name}, an adapt rule with how: vocabulary moves the rows by their words"
        for name in tables
    ][:1]
    return "; ".join(
        [*said, *["the optimizer starts from scratch"] * (keys.get("optimizer") == "reset")]
    )


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
