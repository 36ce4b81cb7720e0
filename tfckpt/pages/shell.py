"""The frame of a page: head, styles, a script, and text that does nothing but be read.

Names come from untrusted files. All text is HTML-escaped, unprintable characters are shown as
escapes, and the page's Content-Security-Policy lets only its own styles and scripts in: nothing is
loaded, and no attribute runs.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
from html import escape
from string import Template
from typing import TYPE_CHECKING

from tfckpt.core.text import printable
from tfckpt.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable


def render(kind: str, title: str, path: str, body: Iterable[str]) -> str:
    """The HTML of a page; ``path`` is the full path that the title is the end of."""
    style, script = _asset("page.css"), _asset("page.js")
    return Template(_asset("page.html")).substitute(
        kind=text(kind),
        title=text(title),
        path=text(path),
        body="\n".join(filter(None, body)),
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

    >>> title_of("runs/a"), title_of("a/checkpoints/")
    ('a', 'a/checkpoints')
    """
    parts = path.rstrip("/").split("/")
    return "/".join(parts[-2:] if parts[-1] == "checkpoints" else parts[-1:]) or path


def text(value: object) -> str:
    r"""Text escaped for HTML.

    >>> print(text("<b>\x1b"))
    &lt;b&gt;\x1b
    """
    return escape(printable(str(value)))


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Short facts, each with its name; empty ones are left out."""
    shown = "".join(
        f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in pairs if value
    )
    return f'<dl class="facts">{shown}</dl>' if shown else ""


def number(value: float | None, digits: int = 3) -> str:
    """A number with a few digits; ``""`` for None.

    >>> number(-0.00012345), number(1234567.0), number(None)
    ('−0.000123', '1.23e+06', '')
    """
    return "" if value is None else f"{value:.{digits}g}".replace("-", "\N{MINUS SIGN}")


def counted(count: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "value"), counted(1200, "value")
    ('1 value', '1,200 values')
    """
    return f"{count:,} {noun}{'s' * (count != 1)}"
