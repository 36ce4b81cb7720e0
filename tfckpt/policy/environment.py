"""``${VAR}`` and ``${VAR:-default}`` in the strings of a config.

Expanded after parsing, so that a variable cannot change the structure of the file; once, so that a
variable's value is never expanded itself; and not in selectors, where ``$`` belongs to regular
expressions. An empty variable counts as unset, as with ``:-`` in a shell: an empty RUN_DIR would
make ``${RUN_DIR}/checkpoints`` a directory of the root. ``${VAR:-}`` allows an empty value.

Refused: a variable without a value, and a ``$`` that is neither ``${...}`` nor ``$$``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_DOLLAR = re.compile(r"\$(?:(\$)|\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|([A-Za-z0-9_]*))")


def expand_variables(text: str, env: Mapping[str, str]) -> str:
    """The text with its variables expanded.

    Raises:
        ValueError: a variable has no value, or a ``$`` is neither ``${...}`` nor ``$$``.

    >>> expand_variables("${RUN_DIR}/${NAME:-run}, 5 $$", {"RUN_DIR": "/data"})
    '/data/run, 5 $'

    """

    def value(match: re.Match[str]) -> str:
        dollar, name, default, bare = match.groups()
        if dollar:
            return "$"
        if name is None:
            raise ValueError(
                "a single `$` is not valid; write an environment variable as "
                f"`${{{bare or 'NAME'}}}`, or a literal `$` as `$$`"
            )
        expanded = env.get(name) or default
        if expanded is None:
            state = "empty" if name in env else "not set"
            raise ValueError(
                f"the environment variable {name} is {state}; "
                f"set it, or give a default: ${{{name}:-...}}"
            )
        return expanded

    return _DOLLAR.sub(value, text)
