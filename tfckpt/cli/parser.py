"""Commands and their flags, their help, and a question where a word looks like one of them."""

from __future__ import annotations

import argparse
import contextlib
import re
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from tfckpt.cli.terminal import UsageError
from tfckpt.core.text import WIDTH
from tfckpt.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Subcommands = argparse._SubParsersAction["CommandParser"]  # as typeshed calls it

# What somebody may look for here, and what does it.
_INSTEAD = {
    "inspect --graph": "--keys shows the path of each value in TensorFlow's object graph",
    "inspect --slice": "`tfckpt export PATH FILE.npz` writes the values for NumPy",
    "inspect --model": "`tfckpt plan PATH --model MODULE:CALLABLE` shows which value goes where",
    "convert": "`tfckpt export SRC DST` writes .npz, .safetensors, .weights.h5 or a checkpoint",
    "rewrite": "a few lines of Python rename or average values: docs/transform.md",
    "policy show": "`tfckpt plan CONFIG --model MODULE:CALLABLE` shows what it restores",
    "policy suggest": "`tfckpt plan PATH --model MODULE:CALLABLE --write FILE` writes a policy",
}
_STATUS = """
exit status: 0 success; 1 difference found, restore refused, checkpoint
  damaged or missing, config invalid; 2 wrong command line; 130 interrupted"""
_SWITCH = re.compile(r"(--\w+): ignored explicit argument .*")


class CommandParser(argparse.ArgumentParser):
    """Raises where argparse exits; flags are written whole."""

    summary = ""

    def __init__(self, *, examples: Iterable[str] = (), **settings: Any) -> None:
        lines = "".join(f"\n  tfckpt {example}" for example in examples)
        super().__init__(
            add_help=False,
            allow_abbrev=False,
            epilog=f"examples:{lines}\n{_STATUS}",
            formatter_class=partial(
                argparse.RawDescriptionHelpFormatter, width=WIDTH, max_help_position=22
            ),
            **settings,
        )
        self.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, below it what is expected."""
        text = _SWITCH.sub(r"\1 takes no value: it is off unless it is given", message)
        if text.endswith("required: DIR"):
            text += ", a directory of checkpoints"
        usage = self.format_usage().rstrip()
        raise UsageError(f"{text.removeprefix('argument ')}\n{usage}", self.prog)


def parsed(words: list[str]) -> argparse.Namespace:
    """The command, as ``command``, its positional arguments in capitals, and its flags."""
    if not words:
        raise UsageError("a command is missing")
    words = [{"help": "--help", "version": "--version"}.get(words[0], words[0]), *words[1:]]
    if words == ["policy"]:
        words = ["policy", "--help"]
    if words[0].startswith("-") and words[0] not in ("-h", "--help", "--version"):
        raise UsageError("flags must follow the command")
    parser, commands = parsers()
    _check_command(words, list(commands))
    arguments, others = parser.parse_known_args(list(map(_with_underscores, words)))
    command = commands[arguments.command]
    for word in others:
        if word.startswith("-"):
            command.error(_unknown_flag(arguments, word))
    if others and getattr(arguments, "B", "") is None:  # argparse ends `A [B]` at a flag
        arguments.B = others.pop(0)
    if others:
        command.error(f"unexpected argument {others[0]!r}")
    return arguments


def _with_underscores(word: str) -> str:
    """A flag as it is called here, which many write with dashes: ``--checkpoint-name``."""
    if not word.startswith("--"):
        return word
    name, separator, value = word.partition("=")
    return f"--{name[2:].replace('-', '_')}{separator}{value}"


def _check_command(words: list[str], names: list[str]) -> None:
    called = words[0]
    if called.startswith("-") or called in names:
        return
    if group := [name for name in names if name.startswith(f"{called} ")]:
        called = " ".join(words[:2])
        if called in names or words[1:2] in (["-h"], ["--help"]):
            return
    if called in _INSTEAD:
        raise UsageError(f"unknown command {called!r}; {_INSTEAD[called]}")
    from tfckpt.core.similar import near_words, question

    known = group or [name.partition(" ")[0] for name in names]
    hint = question(near_words(called, known, 1, 0.8 if group else 0.65) or group)
    raise UsageError(f"unknown command {called!r}{hint and f'; {hint}'}")


def _unknown_flag(arguments: argparse.Namespace, word: str) -> str:
    from tfckpt.core.similar import near_words, question

    flag = word.partition("=")[0]
    name, flags = flag.lstrip("-"), [one for one in vars(arguments) if one.islower()]
    if flag.startswith("--") and name in flags:
        return f"unexpected argument {word!r}"  # after `--`
    if name.removeprefix("no") in flags and name not in flags:
        hint = f"--{name.removeprefix('no')} is off unless it is given"
    else:
        hint = _INSTEAD.get(f"{arguments.command} {flag}", "")
        near = near_words(name, [one for one in flags if one != "command"], 1, 0.65)
        hint = hint or question(f"--{one}" for one in near)
    return f"unknown flag {flag!r}{hint and f'; {hint}'}"


def parsers() -> tuple[CommandParser, dict[str, CommandParser]]:
    """The parser of all, and that of each command by name."""
    parser = CommandParser(
        prog="tfckpt",
        usage="tfckpt COMMAND ... [--json]\n       tfckpt COMMAND --help\n       tfckpt --version",
        examples=["list runs/flowers/checkpoints", "inspect runs/flowers/checkpoints"],
    )
    parser.add_argument(
        "--version", action="version", version=f"tfckpt {__version__}", help=argparse.SUPPRESS
    )
    found: dict[str, CommandParser] = {}
    commands = parser.add_subparsers(metavar="COMMAND", required=True, help=argparse.SUPPRESS)
    add = partial(_command, commands, found)
    _looking(add)
    _restoring(add)
    _writing(add)
    group = commands.add_parser(
        "policy",
        usage="tfckpt policy COMMAND ...",
        examples=["policy check configs/finetune.yaml"],
    )
    below = group.add_subparsers(metavar="COMMAND", required=True, help=argparse.SUPPRESS)
    _policies(partial(_command, below, found))
    summaries = {name: each.summary for name, each in found.items()}
    group.description = _table({n: s for n, s in summaries.items() if n.startswith("policy ")})
    summaries = {n: s for n, s in summaries.items() if not n.startswith("policy ")}
    of_configs = "Check a config, or print the schema of configs."
    parser.description = _table({**summaries, "policy": of_configs})
    return parser, found


def _table(summaries: Mapping[str, str]) -> str:
    width = max(map(len, summaries)) + 2
    return "commands:" + "".join(f"\n  {name:{width}}{text}" for name, text in summaries.items())


def _command(
    commands: Subcommands,
    found: dict[str, CommandParser],
    name: str,
    summary: str,
    details: str,
    *examples: str,
    json: bool = True,
) -> CommandParser:
    """A command, of which only the flags and positional arguments are missing."""
    added = commands.add_parser(
        name.rpartition(" ")[2],
        description=f"{summary}\n{details}".rstrip(),
        examples=examples,
        prog=f"tfckpt {name}",
    )
    added.summary = summary
    added.set_defaults(command=name)
    found[name] = added
    if json:
        text = "Print one JSON document instead of text (schema: docs/cli.md)."
        added.add_argument("--json", action="store_true", help=text)
    return added


def _looking(add: Any) -> None:
    """The commands that only read."""
    added = add(
        "list",
        "List the checkpoints of a directory.",
        """\
Shows step, age, size, metrics and state of each, newest first; with retention
rules, also what they keep and what they would delete. The states: committed
(by tfckpt), foreign (written by other software), uncommitted (written by
tfckpt, without a commit record), damaged, torn (data files without an index).""",
        "list runs/flowers/checkpoints",
        "list runs/flowers/checkpoints --keep latest=3 --keep pin=7",
    )
    added.add_argument("DIR")
    _add_rules(added)
    added = add(
        "inspect",
        "Show the contents of a checkpoint.",
        """\
Lists its values by canonical name, with role, type, size, and totals for each
subtree. For a directory, shows the newest readable checkpoint.""",
        "inspect runs/flowers/checkpoints",
        "inspect zoo/imagenet/ckpt-900 --values",
        "inspect zoo/imagenet/ckpt-900 --name 'model/**/bias'",
        "inspect zoo/imagenet/ckpt-900 --json | jq .nbytes",
    )
    added.add_argument("PATH", metavar="PATH|DIR")
    views = added.add_mutually_exclusive_group()
    text = "Show statistics and a small histogram of each value."
    views.add_argument("--values", action="store_true", help=text)
    text = "Print the values that match GLOB, or a regular expression after re:."
    views.add_argument("--name", metavar="GLOB", help=text)
    text = "Show the checkpoint key of each value."
    views.add_argument("--keys", action="store_true", help=text)
    _add_html(added)
    added = add(
        "diff",
        "Compare two checkpoints, or a checkpoint and a model.",
        """\
Shows values that only one side has, values whose shape, type or content
differs, and values that moved: the same content under another name, found by
checksum. With --model, B is the model that CALLABLE returns, and contents are
compared only with --values. Exit status 1 if anything differs.""",
        "diff runs/flowers/checkpoints zoo/imagenet/ckpt-900",
        "diff runs/a/ckpt-1 runs/a/ckpt-2 --values",
        "diff zoo/imagenet/ckpt-900 --model train:build_model",
    )
    added.add_argument("A")
    added.add_argument("B", nargs="?")
    text = "Show the largest and the relative difference of values."
    added.add_argument("--values", action="store_true", help=text)
    _add_model(added)
    _add_html(added)
    added = add(
        "verify",
        "Check every checksum and list damaged values.",
        """\
For a directory, checks all its checkpoints. In formats without checksums, only
checks that all values can be read. --quarantine moves all files of a damaged
checkpoint to DIR/quarantine/NAME; nothing is deleted.""",
        "verify runs/flowers/checkpoints",
        "verify runs/flowers/checkpoints --quarantine",
    )
    added.add_argument("PATH", metavar="PATH|DIR")
    text = "Move damaged checkpoints to DIR/quarantine."
    added.add_argument("--quarantine", action="store_true", help=text)
    added = add(
        "doctor",
        "Show what a bug report needs.",
        """\
Versions; of a directory its file system, lock, free space and checkpoints, and
what the next start would do. Changes nothing.""",
        "doctor runs/flowers/checkpoints",
    )
    added.add_argument("DIR", nargs="?")


def _restoring(add: Any) -> None:
    """What a restore would do."""
    added = add(
        "plan",
        "Show what a restore would do, without doing it.",
        """\
Shows each value; nothing is assigned. Of a checkpoint or a directory, it is the
restore without a policy. A refused plan ends with a policy that would be
accepted, if one was found; layers that nothing distinguishes are listed for you
to decide. CALLABLE returns the built model, or a dict of objects:
{"model": model, "optimizer": optimizer}.""",
        "plan configs/finetune.yaml --model train:build_model",
        "plan zoo/imagenet/ckpt-900 --model train:build_model",
        "plan configs/finetune.yaml --model train:build --expect plan.json",
        "plan zoo/vit.h5 --model train:build --write vit.yaml",
    )
    added.add_argument("CONFIG", metavar="CONFIG|PATH|DIR")
    _add_model(added, required=True)
    text = (
        "Compare with what --json printed before: exit status 1 if a value goes elsewhere, or has "
        "another shape or dtype."
    )
    added.add_argument("--expect", metavar="FILE", help=text)
    text = (
        "Write a config with the policy that would be accepted in place of a refused PATH; "
        "the file must not exist. The exit status is then 0."
    )
    added.add_argument("--write", metavar="FILE", help=text)
    _add_html(added)

    added = add(
        "check",
        "Compare what a model returns with what it returned at its save.",
        """\
Calls the model that CALLABLE returns on the batch of save(…, probe=batch), and
compares its outputs with the recorded ones: equal in every bit, or the largest
difference. Exit status 1 if they differ, 2 if that cannot be said.""",
        "check runs/flowers/checkpoints --model serve:load_model",
        "check zoo/ckpt-900 --model train:build_model --restore zoo/ckpt-900",
    )
    added.add_argument("PATH", metavar="PATH|DIR")
    _add_model(added, required=True)
    text = "Restore this into the model before."
    added.add_argument("--restore", metavar="CONFIG|PATH|DIR", help=text)


def _writing(add: Any) -> None:
    """The commands that write or delete."""
    added = add(
        "prune",
        "Delete the checkpoints that no retention rule keeps.",
        """\
Without --yes, only shows what would be deleted. Never deletes the newest
checkpoint, damaged ones, or those that other software wrote.""",
        "prune runs/flowers/checkpoints --keep latest=3",
        "prune runs/flowers/checkpoints --config configs/pretrain.yaml --yes",
    )
    added.add_argument("DIR")
    _add_rules(added, required=True)
    added.add_argument("--yes", action="store_true", help="Delete them.")
    added = add(
        "export",
        "Write a checkpoint for other programs.",
        """\
DST ends with .npz or .safetensors: values by canonical names, of any SRC that
`inspect` can read. With --model, SRC is restored first, as by `plan`; then DST
is the .weights.h5 that Keras writes, or the prefix of a TensorFlow checkpoint.
Never overwrites files.""",
        "export runs/flowers/checkpoints flowers.safetensors",
        "export zoo/ckpt-900 new.weights.h5 --model train:build_model",
        "export zoo/ckpt-900 new/ckpt-1 --model train:build --policy body.yaml",
        json=False,
    )
    added.add_argument("SRC")
    added.add_argument("DST")
    _add_model(added)
    text = "File with the keys of a policy, of that restore; a config stands in place of SRC."
    added.add_argument("--policy", metavar="FILE", help=text)
    added = add(
        "report",
        "Write the HTML page of a run.",
        """\
Its checkpoints on a line of steps, with their metrics, what is kept and why;
one file, which loads nothing. What `inspect`, `diff` and `plan` print is HTML
by their --html.""",
        "report runs/flowers/checkpoints --open",
        "report runs/flowers/checkpoints --keep latest=3 --html flowers.html",
        json=False,
    )
    added.add_argument("DIR")
    text = "The file to write; report-NAME.html by default."
    added.add_argument("--html", metavar="FILE", help=text)
    _add_rules(added)
    added.add_argument("--force", action="store_true", help="Write over an existing file.")
    added.add_argument("--open", action="store_true", help="Show the page in the browser.")


def _policies(add: Any) -> None:
    """The commands about configs."""
    added = add(
        "policy check",
        "Check a config, without a model or checkpoint.",
        "Lists every error with its line.",
        "policy check configs/finetune.yaml",
    )
    added.add_argument("CONFIG")
    summary = "Print the JSON Schema of configs, for editors."
    add("policy schema", summary, "", "policy schema > schema.json", json=False)


def _add_model(added: CommandParser, *, required: bool = False) -> None:
    text = "Function that returns the model or a dict of objects, e.g. train:build_model."
    added.add_argument("--model", metavar="MODULE:CALLABLE", required=required, help=text)


def _add_html(added: CommandParser) -> None:
    text = "Write what is printed into a new file, as HTML."
    added.add_argument("--html", metavar="FILE", help=text)


def _add_rules(added: CommandParser, *, required: bool = False) -> None:
    rules = added.add_mutually_exclusive_group(required=required)
    text = (
        "Retention rule: latest=3, best=2,monitor=val_loss, every_n_steps=1000, "
        "every_n_hours=12 or pin=3,7. A checkpoint that any rule keeps is kept."
    )
    rules.add_argument(
        "--keep", metavar="RULE", action="append", type=_rule, default=[], help=_repeated(text)
    )
    text = "Use the retention rules of this config (manager: keep:)."
    rules.add_argument("--config", metavar="FILE", help=text)
    text = "Name before the number, if DIR has checkpoints of several names."
    added.add_argument("--checkpoint_name", metavar="NAME", help=text)


def _repeated(text: str) -> str:
    return f"{text} May be repeated."


def _rule(text: str) -> dict[str, Any]:
    """Parse ``best=2,monitor=val_loss`` or ``pin=3,7``.

    >>> _rule("best=2,monitor=val_loss"), _rule("pin=3,7")
    ({'best': 2, 'monitor': 'val_loss'}, {'pin': [3, 7]})
    """
    rule: dict[str, Any] = {}
    key = ""
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals:
            key = name.strip()
            rule[key] = [_number(value)] if key == "pin" else _number(value)
        elif key == "pin":
            rule[key].append(_number(part))
        else:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a valid rule; use e.g. best=2,monitor=loss,mode=min"
            )
    return rule


def _number(text: str) -> Any:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text.strip()
