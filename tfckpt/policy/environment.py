"""``${VAR}`` and ``${VAR:-default}`` in the strings of a config.

Filled in after parsing, so that no variable can change what the file means, once, so that what a
variable holds is never read again, and not in selectors, where ``$`` is a regular expression's. A
variable that is unset or empty has no value, as in a shell's ``:-``: an empty RUN_DIR would make
``${RUN_DIR}/checkpoints`` a directory of the root. Where empty is meant, ``${VAR:-}`` says so.

Refused: a variable without a value, and a dollar that is neither ``${...}`` nor ``$$``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_DOLLAR = re.compile(r"\$(?:(\$)|\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|([A-Za-z0-9_]*))")


def fill_in(text: str, env: Mapping[str, str]) -> str:
    """The text with its variables filled in.

    Raises:
        ValueError: a variable has no value, or a dollar means nothing.

    >>> fill_in("${RUN_DIR}/${NAME:-run}, 5 $$", {"RUN_DIR": "/data"})
    '/data/run, 5 $'

    """

    def value(found: re.Match[str]) -> str:
        dollar, name, default, bare = found.groups()
        if dollar:
            return "$"
        if name is None:
            meant = f", and the environment variable `${{{bare}}}`" if bare else ""
            raise ValueError(f"a `$` that begins no `${{NAME}}` is written `$$`{meant}")
        filled = env.get(name) or default
        if filled is None:
            state = "empty" if name in env else "not set"
            raise ValueError(
                f"the environment variable {name} is {state}; "
                f"set it, or write ${{{name}:-...}} with a default"
            )
        return filled

    return _DOLLAR.sub(value, text)
