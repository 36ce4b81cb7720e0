"""What every page has: head, styles, scripts, and text that does nothing but be read.

Names come from untrusted files. All text is HTML-escaped, unprintable characters are shown as
escapes, and the page's Content-Security-Policy lets only its own styles and scripts in: nothing is
loaded, and no attribute runs.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
import json
import math
from html import escape
from string import Template
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.text import one_line, printable
from tfckpt.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_SCRIPTS = ("d3.js", "values.js", "sizes.js", "curves.js", "start.js")


class Page(NamedTuple):
    """A page before it is rendered.

    Attributes:
        kind: what it is about, ``Checkpoint``.
        title: its name.
        body: HTML below the title.
        path: the full path that the title is the end of.
    """

    kind: str
    title: str
    body: Iterable[str]
    path: str = ""


def render(page: Page) -> str:
    """The HTML of the page."""
    style, script = _asset("page.css"), "\n".join(map(_asset, _SCRIPTS))
    return Template(_asset("page.html")).substitute(
        kind=text(page.kind),
        title=text(page.title),
        path=f'<p class="path">{copied(page.path)}</p>' if page.path else "",
        body="\n".join(filter(None, page.body)),
        style=style,
        style_digest=_digest(style),
        script=script,
        script_digest=_digest(script),
        version=text(__version__),
    )


def _asset(name: str) -> str:
    assets = importlib.resources.files("tfckpt.pages").joinpath("assets")
    return assets.joinpath(name).read_text(encoding="utf-8")


def _digest(content: str) -> str:
    return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def title_of(path: str) -> str:
    """The part of a path that tells a reader what it is.

    >>> title_of("runs/a/ckpt-1"), title_of("a/checkpoints/"), title_of("m/variables/variables")
    ('ckpt-1', 'a/checkpoints', 'm')
    """
    parts = path.rstrip("/").removesuffix("/variables/variables").split("/")
    return "/".join(parts[-2:] if parts[-1] == "checkpoints" else parts[-1:]) or path


def text(value: object) -> str:
    r"""Text escaped for HTML.

    >>> print(text("<b>\x1b"))
    &lt;b&gt;\x1b
    """
    return escape(printable(str(value)))


def data(value: object) -> str:
    """JSON for an attribute, which scripts read."""
    return text(json.dumps(value, separators=(",", ":")))


def tag(word: str, hue: str, order: int | None = None) -> str:
    """A word on its color; ``order`` is what it is sorted by, if not by itself."""
    sorted_by = "" if order is None else f' data-order="{order}"'
    return f'<b class="{hue}"{sorted_by}>{text(word)}</b>'


def verdict(words: str, hue: str) -> str:
    """The sentence that a reader wants first."""
    return f'<p class="verdict {hue}">{text(words)}</p>'


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Short facts, each with its name; empty ones are left out."""
    shown = "".join(
        f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in pairs if value
    )
    return f'<dl class="facts">{shown}</dl>' if shown else ""


def passed_over(rejected: Iterable[object]) -> Iterator[str]:
    """Newer checkpoints that were not taken, each with the reason."""
    return (f"<p>passed over: {text(one_line(str(why)))}</p>" for why in rejected)


def copied(value: str) -> str:
    """A name or a command that a click copies."""
    return f'<code class="copied">{text(value)}</code>'


def number(value: object, digits: int = 3) -> str:
    """A number with a few digits; ``""`` for None.

    >>> number(-0.00012345), number(1234567.0), number(None), number(float("inf"))
    ('−0.000123', '1.23e+06', '', '∞')
    """
    if not isinstance(value, int | float):
        return "" if value is None else text(value)
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:.{digits}g}".replace("-", "\N{MINUS SIGN}")


def counted(count: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "value"), counted(1200, "value")
    ('1 value', '1,200 values')
    """
    return f"{count:,} {noun}{'s' * (count != 1)}"


def percent(share: float | None) -> str:
    """A share; small ones with enough digits to tell them apart.

    >>> percent(0.25), percent(0.00123), percent(1.5), percent(None)
    ('25%', '0.123%', '150%', '')
    """
    if share is None:
        return ""
    return f"{float(f'{share * 100:.3g}'):g}%"


def area(histogram: Sequence[int], name: str) -> str:
    """A histogram as SVG, to be drawn over another one."""
    most, width = max(histogram), 84 / len(histogram)
    heights = [math.ceil(20 * count / most) if count else 0 for count in histogram]
    steps = "".join(f"V{20 - height}h{width:.4g}" for height in heights)
    return f'<path class="{name}" d="M0 20{steps}V20z"/>'


def bars(histogram: Sequence[int]) -> str:
    """A histogram as SVG; a bin that is not empty is always visible."""
    most = max(histogram, default=0)
    width = 84 // max(len(histogram), 1)
    path = ""
    for position, count in enumerate(histogram):
        if count:
            height = max(math.ceil(20 * count / most), 1)
            path += f"M{position * width} 20v-{height}h{max(width - 1, 2)}v{height}z"
    return f'<path d="{path}"/>'
