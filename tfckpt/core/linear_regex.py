"""Regular expressions whose matching takes bounded time, for the ``re:`` selectors.

Python's ``re`` backtracks: ``(a+)+b`` takes forever on a name of forty characters, ``.*.*.*.*x`` on
a long one, and names come from files that other people made. Here an expression is compiled to a
small program, and each (instruction, position) is visited once, so that time is bounded by their
product (https://swtch.com/~rsc/regexp/regexp2.html). Syntax, greediness and the order of
alternatives are Python's; ``re`` itself matches single characters and classes.

Refused, because they have no such bound or no use on a whole name: lookaround, back-references,
flags, and anchors, except ``^`` at the start and ``$`` at the end, which change nothing.
"""

from __future__ import annotations

import re
import warnings

MAX_PROGRAM = 1000
MAX_GROUPS = 32

_ATOM = re.compile(
    r"""\((?:\?:|\?P<(?P<name>[A-Za-z_]\w*)>|(?!\?))
      | (?P<single>\\[dDsSwWntrfv] | \\[^A-Za-z0-9] | \\x[0-9A-Fa-f]{2}
          | \[\^?\]?(?:\\.|[^\]\\])*\] | [^\\()|*+?\[^$])""",
    re.VERBOSE | re.DOTALL,
)
_TIMES = re.compile(r"(?:([*+?])|\{(?=[\d,])(\d*)(?:(,)(\d*))?\})([?+]?)")
_REFUSED = {
    "(?": "lookaround, flags or back-references",
    "\\": "back-references or this escape",
    "^": "'^' anywhere but at the start",
    "$": "'$' anywhere but at the end",
}
_Step = re.Pattern[str] | str | tuple[int, ...]


class Regex:
    """A regular expression as a program, run with every (instruction, position) visited once.

    Instructions: a pattern or a character that must match the next character; a tuple of jumps, to
    try in order; a tuple (0, slot), to save the position. Past the last instruction, it matches.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.names: dict[str, int] = {}
        self.groups = 0
        self._at = 0
        self._depth = 0
        self._program = self._alternatives()
        if self._at < len(text):
            raise self._error("unmatched ')'")

    def match(self, name: str) -> tuple[str, ...] | None:
        """The whole name and each group's text, or None."""
        program, end = self._program, len(self._program)
        todo: list[tuple[int, int, tuple[int, ...]]] = [(0, 0, (-1,) * (2 * self.groups))]
        seen: set[tuple[int, int]] = set()
        while todo:
            pc, at, saved = todo.pop()
            if (pc, at) in seen:
                continue
            seen.add((pc, at))
            if pc == end:
                if at == len(name):
                    pairs = zip(saved[::2], saved[1::2], strict=True)
                    return (name, *(name[a:b] if b >= 0 else "" for a, b in pairs))
                continue
            step = program[pc]
            if not isinstance(step, tuple):
                if at < len(name) and (
                    step == name[at] if isinstance(step, str) else step.match(name[at])
                ):
                    todo.append((pc + 1, at + 1, saved))
            elif step[0] == 0:
                slot = step[1]
                todo.append((pc + 1, at, (*saved[:slot], at, *saved[slot + 1 :])))
            else:
                todo.extend((pc + jump, at, saved) for jump in reversed(step))
        return None

    def _error(self, what: str) -> ValueError:
        return ValueError(f"{what}, at character {self._at + 1} of {self.text!r}")

    def _alternatives(self) -> list[_Step]:
        first = self._sequence()
        if not self.text.startswith("|", self._at):
            return first
        self._at += 1
        second = self._alternatives()
        return [(1, len(first) + 2), *first, (len(second) + 1,), *second]

    def _sequence(self) -> list[_Step]:
        steps: list[_Step] = []
        while self._at < len(self.text) and self.text[self._at] not in "|)":
            start = self._at
            if (self.text[start], start) in {("^", 0), ("$", len(self.text) - 1)}:
                self._at += 1
            else:
                steps += self._repeated(self._piece())
            if len(steps) > MAX_PROGRAM:
                raise self._error("the expression is too long")
        return steps

    def _piece(self) -> list[_Step]:
        if _TIMES.match(self.text, self._at):
            raise self._error("nothing to repeat")
        atom = _ATOM.match(self.text, self._at)
        if atom is None:
            start = self.text[self._at : self._at + 2]
            refused = _REFUSED.get(start) or _REFUSED.get(start[0])
            if refused is None:
                raise self._error(f"{start[0]!r} is not closed")
            raise self._error(f"selectors do not support {refused}")
        self._at = atom.end()
        if (single := atom["single"]) is not None:
            return [single if len(single) == 1 and single != "." else self._character(single)]
        return self._group(atom[0] != "(?:", atom["name"])

    def _group(self, captures: bool, name: str | None) -> list[_Step]:
        slot = 2 * self.groups
        self.groups += captures
        self._depth += 1
        if self.groups > MAX_GROUPS or self._depth > MAX_GROUPS:
            raise self._error(f"more than {MAX_GROUPS} groups")
        if name is not None:
            if name in self.names:
                raise self._error(f"duplicate group {name!r}")
            self.names[name] = self.groups
        inside = self._alternatives()
        if not self.text.startswith(")", self._at):
            raise self._error("'(' is not closed")
        self._at += 1
        self._depth -= 1
        return [(0, slot), *inside, (0, slot + 1)] if captures else inside

    def _character(self, text: str) -> re.Pattern[str]:
        try:
            with warnings.catch_warnings():
                # "[[" may mean a nested set in some later Python; here it stays a bracket.
                warnings.simplefilter("ignore", FutureWarning)
                return re.compile(text)
        except re.error as error:
            raise self._error(f"invalid {text!r} ({error})") from None

    def _repeated(self, piece: list[_Step]) -> list[_Step]:
        times = _TIMES.match(self.text, self._at)
        if times is None:
            return piece
        if times[5] == "+" or _TIMES.match(self.text, times.end()):
            raise self._error("a repetition cannot be repeated")
        sign, low, comma, high = times[1], times[2], times[3], times[4]
        least = int(sign == "+") if sign else int((low or "0")[:5])
        most = 1 if sign == "?" else None
        if not sign and (high or not comma):
            most = int((high or low)[:5])
        if most is not None and most < least:
            raise self._error("the minimum repeat is greater than the maximum")
        if (len(piece) + 1) * max(least, most or 1) > MAX_PROGRAM:
            raise self._error("the repetition is too long")
        self._at = times.end()
        lazy = times[5] == "?"
        if most is None:
            again = len(piece) + 2
            tail = [(again, 1) if lazy else (1, again), *piece, (-again + 1,)]
        else:
            tail = []
            for _ in range(most - least):
                after = len(piece) + len(tail) + 1
                tail = [(after, 1) if lazy else (1, after), *piece, *tail]
        return piece * least + tail
