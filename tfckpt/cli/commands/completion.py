"""`tfckpt completion`: a shell's completion script for commands, flags and paths.

Generated from the table of commands, so that it is never out of date. Zsh uses the bash script. Of
a checkpoint's files, only its prefix is offered: ``runs/ckpt-18``, never ``runs/ckpt-18.index``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfckpt.cli.arguments.command import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfckpt.cli.arguments.command import Arguments, Command

# The path of a checkpoint for that of its index file; no other file of it.
_BASH_PATHS = """\
_tfckpt_paths() {
  local path
  compopt -o filenames 2>/dev/null
  while IFS= read -r path; do
    case "$path" in
      *.index) COMPREPLY+=("${path%.index}") ;;
      *.data-?????-of-?????|*.tfckpt.json|*.tfckpt.order|*/checkpoint|checkpoint|*.tfckpt.lock) ;;
      *) COMPREPLY+=("$path") ;;
    esac
  done < <(compgen -f -- "$1")
}"""
_FISH_PATHS = r"""
function __tfckpt_paths
    __fish_complete_path (commandline -ct) | string replace -r '\t.*' '' |
        string match -rv '\.data-\d{5}-of-\d{5}$|\.tfckpt\.(json|order|lock)$|(^|/)checkpoint$' |
        string replace -r '\.index$' ''
end"""
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


def _takes_paths(command: Command) -> bool:
    """Whether its arguments are paths: placeholders in capitals."""
    return command.positional.isupper()


def _flags(command: Command) -> list[str]:
    choices = command.positional.split("|") if command.positional.islower() else []
    return [*choices, *(f"--{flag.name}" for flag in command.all_flags), "--help"]


def _bash(commands: Sequence[Command]) -> Iterator[str]:
    yield _BASH_PATHS
    yield "_tfckpt() {"
    yield '  local current="${COMP_WORDS[COMP_CWORD]}" words paths='
    yield '  local line="${COMP_WORDS[*]:1:$((COMP_CWORD-1))}"'
    yield "  COMPREPLY=()"
    yield '  case "$line" in'
    for start, words in _following(commands).items():
        yield f'    "{start}") words="{" ".join(words)}" ;;'
    for command in commands:
        flags, paths = " ".join(_flags(command)), "yes" if _takes_paths(command) else ""
        yield f'    "{command.name}"|"{command.name} "*) words="{flags}" paths={paths} ;;'
    yield "  esac"
    yield "  if [[ $paths && $current != -* ]]; then"
    yield '    _tfckpt_paths "$current"'
    yield "  else"
    yield '    COMPREPLY=($(compgen -W "$words" -- "$current"))'
    yield "  fi"
    yield "}"
    yield "complete -o default -o bashdefault -F _tfckpt tfckpt"


def _fish(commands: Sequence[Command]) -> Iterator[str]:
    yield _FISH_PATHS.lstrip()
    yield "complete -c tfckpt -f"
    for start, words in _following(commands).items():
        seen = f"__fish_seen_subcommand_from {start}; and not " if start else "not "
        when = f"{seen}__fish_seen_subcommand_from {' '.join(words)}"
        yield f"complete -c tfckpt -n '{when}' -a '{' '.join(words)}'"
    for command in commands:
        *_, last = command.name.split()
        if _takes_paths(command):
            seen = f"__fish_seen_subcommand_from {last}"
            yield f"complete -c tfckpt -n '{seen}' -a '(__tfckpt_paths)'"
        for flag in command.all_flags:
            needs = " -r" if flag.value else ""
            yield (
                f"complete -c tfckpt -n '__fish_seen_subcommand_from {last}' -l {flag.name}{needs}"
            )
