"""A plan as HTML, for notebooks.

It has the same groups as the text (:mod:`tfckpt.planning.report`), in the notebook's own fonts and
colors, so that it suits light and dark themes. All text is escaped, because names come from files;
nothing is loaded from elsewhere.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from tfckpt.core.text import printable
from tfckpt.planning.checks.step import Severity
from tfckpt.planning.report import problem_of, sections, totals, verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfckpt.planning.plan import Plan
    from tfckpt.planning.report import Section, StepGroup

_LEFT = 'style="text-align: left"'


def plan_html(plan: Plan, above: Sequence[str] = ()) -> str:
    """The plan, below the lines ``above``.

    >>> from tfckpt.planning.plan import Plan
    >>> plan_html(Plan("p", "<b>", ()))
    '<div><p><b>0 values (0 B) from &lt;b&gt; under policy &#x27;p&#x27;</b></p></div>'
    """
    return f"<div>{''.join(_parts(plan, above))}</div>"


def _parts(plan: Plan, above: Sequence[str]) -> Iterator[str]:
    yield from (f"<p>{escape(printable(line))}</p>" for line in above)
    yield f"<p><b>{escape(verdict(plan))}</b></p>"
    if plan.training and plan.ok:
        yield f"<p>{escape(plan.training)}</p>"
    if sums := totals(plan):
        cells = ("".join(f"<td>{cell}</td>" for cell in (s, f"{n:,}", b)) for s, n, b in sums)
        yield f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"
    for section in sections(plan):
        opened = "" if section.severity is Severity.OK else " open"
        yield f"<details{opened}><summary>{section.title}</summary>{''.join(_rows(section))}"
        yield "</details>"
    for problem in plan.faults:
        message, hint = problem_of(plan, problem)
        yield f"<p>{escape(message)}{_hint(hint)}</p>"
    if plan.suggestion is not None:
        yield f"<pre>{escape(str(plan.suggestion))}</pre>"


def _rows(section: Section) -> Iterator[str]:
    yield "<table>"
    hint = ""
    for group in section.groups:
        yield f"<tr><td {_LEFT}><b>{group.status}</b></td>"
        yield f'<td {_LEFT} colspan="2">{escape(group.headline)}</td></tr>'
        if group.hint and group.hint != hint:
            yield f'<tr><td></td><td {_LEFT} colspan="2">{_hint(group.hint)}</td></tr>'
        yield from _values(group)
        hint = group.hint
    yield "</table>"
    if section.hidden:
        yield f"<p>… and {section.hidden:,} more for other reasons</p>"


def _values(group: StepGroup) -> Iterator[str]:
    for line in group.lines:
        kind = line.kind + (f" ×{line.count}" if line.count > 1 else "")
        name, kind = escape(line.name), escape(kind)
        yield f"<tr><td></td><td {_LEFT}><code>{name}</code></td><td {_LEFT}>{kind}</td></tr>"
    if group.hidden:
        yield f"<tr><td></td><td {_LEFT}>… and {group.hidden:,} more like these</td></tr>"


def _hint(hint: str) -> str:
    return f"<br>→ {escape(hint)}" if hint else ""
