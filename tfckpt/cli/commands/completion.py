"""`tfckpt completion`: a shell's completion script for commands, flags and paths.

Generated from the table of commands, so that it is never out of date. Zsh uses the bash script.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfckpt.cli.arguments.command import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfckpt.cli.arguments.command import Arguments, Command

_ZSH = "autoload -U +X compinit bashcompinit && compinit && bashcompinit"


def run(arguments: Arguments) -> int:
    """Print the script for a shell."""
    from tfckpt.cli.arguments.command_table import COMMANDS

    shell = arguments.single("a shell: bash, zsh or fish")
    if shell == "fish":
        print("\n".join(_fish(COMMANDS)))
    elif shell in ("bash", "zsh"):
        print("\n".join(([_ZSH] if shell == "zsh" else []) + list(_bash(COMMANDS))))
    else:
        raise UsageError(f"{shell!r} is not a supported shell; use bash, zsh or fish")
    return 0


def _following(commands: Sequence[Command]) -> dict[str, list[str]]:
    """The words that can follow each prefix of a command: ``policy`` → ``check``, ``schema``…"""
    following: dict[str, list[str]] = {"": []}
    for command in commands:
        words = command.name.split()
        for index, word in enumerate(words):
            nexts = following.setdefault(" ".join(words[:index]), [])
            if word not in nexts:
                nexts.append(word)
    return following


def _flags(command: Command) -> list[str]:
    return [*(f"--{flag.name}" for flag in command.all_flags), "--help"]


def _bash(commands: Sequence[Command]) -> Iterator[str]:
    yield "_tfckpt() {"
    yield '  local current="${COMP_WORDS[COMP_CWORD]}" line="${COMP_WORDS[*]:1:COMP_CWORD-1}" words'
    yield "  COMPREPLY=()"
    yield '  case "$line" in'
    for start, words in _following(commands).items():
        yield f'    "{start}") words="{" ".join(words)}" ;;'
    for command in commands:
        yield f'    "{command.name}"|"{command.name} "*) words="{" ".join(_flags(command))}" ;;'
    yield "  esac"
    yield '  COMPREPLY=($(compgen -W "$words" -- "$current"))'
    yield "}"
    yield "complete -o default -o bashdefault -F _tfckpt tfckpt"


def _fish(commands: Sequence[Command]) -> Iterator[str]:
    for start, words in _following(commands).items():
        seen = f"__fish_seen_subcommand_from {start}; and not " if start else "not "
        when = f"{seen}__fish_seen_subcommand_from {' '.join(words)}"
        yield f"complete -c tfckpt -n '{when}' -a '{' '.join(words)}'"
    for command in commands:
        *_, last = command.name.split()
        for flag in command.all_flags:
            needs = " -r" if flag.value else ""
            yield (
                f"complete -c tfckpt -n '__fish_seen_subcommand_from {last}' -l {flag.name}{needs}"
            )
