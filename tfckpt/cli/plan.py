"""``--model MODULE:CALLABLE``, and the commands that need it: `plan` and `check`.

The user's own code builds the objects. What it prints goes to standard error, so that ``--json``
stays valid JSON.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import operator
import os
import sys
import tempfile
import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from absl import flags

import tfckpt
from tfckpt.cli.terminal import UsageError, is_terminal
from tfckpt.core.text import printable
from tfckpt.errors import NotInstalledError
from tfckpt.planning import Severity
from tfckpt.policy.load import has_config_name
from tfckpt.policy.messages import short
from tfckpt.tools.find_checkpoint import find

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

_STYLES = {
    Severity.ERROR: "bold red",
    Severity.WARN: "yellow",
    Severity.NOTE: "cyan",
    Severity.OK: "green",
}


def plan(arguments: Namespace) -> int:
    """Print a plan, or what differs from --expect.

    Returns 1 if it is refused, unless --write has written a policy for it, or differs.
    """
    source, file, expect = arguments.CONFIG, arguments.write, arguments.expect
    if file is not None and has_config_name(source):
        raise UsageError(f"--write needs a checkpoint, not a config: add the lines to {source}")
    written = False
    then = None if expect is None else _expected(expect)
    with contextlib.redirect_stdout(sys.stderr):
        objects = load_objects(arguments.model)
        made = plan_for(source, arguments.model, objects)
        if file is not None:
            written = _write_config(file, source, made)
    if arguments.json:
        print(json.dumps(made.to_json(), indent=2))
    elif then is None or not made.ok:
        _print(made)
    now = None if then is None else _resolved(made.to_json())
    if now is not None:
        lines = map(printable, _compared(expect, then or {}, now))
        print("\n".join(lines), file=sys.stderr if arguments.json else sys.stdout)
    return 0 if (made.ok or written) and then == now else 1


def check(arguments: Namespace) -> int:
    """Print how far outputs are from the recorded ones: 0 equal, 1 not, 2 nobody knows."""
    with contextlib.redirect_stdout(sys.stderr):
        from tfckpt.live import outputs
        from tfckpt.live.inventory import collect

        objects = load_objects(arguments.model)
        if arguments.restore is not None:
            tfckpt.restore(arguments.restore, **objects)
        with find(arguments.PATH).checkpoint as stored:
            recorded = None if stored.record is None else stored.record.outputs
            found = outputs.check(collect(objects).models, recorded, stored.prefix)
    print(json.dumps(found.to_json(), indent=2) if arguments.json else found)
    return 0 if found.equal else 1


def plan_for(source: str, target: str, objects: Mapping[str, Any]) -> tfckpt.Plan:
    """The plan of a config or a checkpoint for what ``--model`` names."""
    try:
        return tfckpt.plan(source, **objects)
    except ValueError as error:
        ours = isinstance(error, tfckpt.TfckptError)
        about_objects = not ours or isinstance(error, tfckpt.UntrackedError)
        if not (untrackable := _untrackable(objects) if about_objects else []):
            raise
        raise UsageError(
            f"--model {target} returned {', '.join(untrackable)}; it must return the model, "
            "or a dict of objects by name"
        ) from None


def _expected(file: str) -> dict[str, str]:
    """Where each value goes in a plan that ``--json`` printed; all else of it is not compared."""
    try:
        with open(file, encoding="utf-8") as stream:  # noqa: PTH123  as it was typed
            document = json.load(stream)
        found = _resolved(document)
        if document["version"] == 1 and document["ok"]:
            return found
        message = f"{printable(file)}: is a plan that is refused, or of another version"
    except OSError as error:
        raise tfckpt.TfckptError(f"{printable(file)}: cannot be read: {error}") from None
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        message = f"{printable(file)}: is not what `tfckpt plan --json` prints"
    hint = "write it by `tfckpt plan CONFIG --model MODULE:CALLABLE --json > FILE`"
    raise tfckpt.TfckptError(message, hint=hint)


def _resolved(plan: Mapping[str, Any]) -> dict[str, str]:
    """Value → where it comes from, as what, and how it is changed; no reasons and no paths."""
    found: dict[str, list[str]] = {}
    for step in plan["steps"]:
        sources = filter(None, (step["source"], *(part["source"] for part in step["parts"])))
        sides = [side for side in (step["live"], step["stored"]) if side]
        kinds = dict.fromkeys(f"{side['dtype']} {side['shape']}" for side in sides)
        changes = (f"{change['how']} {change['detail']}".strip() for change in step["changes"])
        origin = " + ".join(dict.fromkeys(sources))
        words = step["status"], origin and f"from {origin}", " ← ".join(kinds), *changes
        found.setdefault(step["name"] or step["source"], []).append(", ".join(filter(None, words)))
    return {str(name): "; ".join(sorted(texts)) for name, texts in found.items()}


def _compared(file: str, then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Lines on what differs: the value, then, now."""
    names = sorted({**then, **now})
    changed = [name for name in names if then.get(name) != now.get(name)]
    if not changed:
        return [f"as in {file}: {len(now):,} value{'s' * (len(now) != 1)}"]
    lines = [f"not as in {file}: {len(changed):,} of {len(names):,} values"]
    for name in changed:
        old, new = (side.get(name, "nothing") for side in (then, now))
        lines += [f"  {name}", f"    then  {old}", f"    now   {new}"]
    return lines


def _write_config(file: str, source: str, plan: tfckpt.Plan) -> bool:
    """Write a config that restores a checkpoint by the suggested policy; whether there is one."""
    import yaml

    policy = plan.suggestion.policy if plan.suggestion is not None else None
    if policy is None:
        reason = "is needed" if plan.ok else "was found that would restore it"
        print(f"{printable(file)}: not written: no policy {reason}")
        return False
    kind = "directory" if os.path.isdir(source) else "path"  # noqa: PTH112  as it was typed
    keys = policy.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"name"})
    keys = {"api": "read", **keys}  # a run has a save counter, which this plan had not
    restore = {kind: source.replace("$", "$$"), "policy": "suggested"}
    config = {"version": 1, "restore": restore, "policies": {"suggested": keys}}
    text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=100)
    try:
        with open(file, "x", encoding="utf-8") as stream:  # noqa: PTH123  as it was typed
            stream.write(text)
    except FileExistsError:
        raise tfckpt.TfckptError(f"{file} already exists; choose another name") from None
    except OSError as error:
        raise tfckpt.TfckptError(f"{file}: cannot write the config: {error}") from None
    print(f"{printable(file)}: written")
    return True


def _untrackable(objects: Mapping[str, Any]) -> list[str]:
    """The objects that a checkpoint cannot contain, as ``name = value``."""
    from tfckpt.live.private.tensorflow import Trackable

    return [
        f"{name} = {short(repr(obj))}"
        for name, obj in objects.items()
        if not isinstance(obj, (Trackable, list, tuple, dict))
    ]


def _print(plan: tfckpt.Plan) -> None:
    if not is_terminal():
        print(plan)
        return
    from rich.console import Console
    from rich.text import Text

    from tfckpt.planning.report import rows

    console = Console(highlight=False, soft_wrap=True)
    for row in rows(plan, plan.suggestion):
        text = Text(row.text)
        if row.severity is not None:
            first = len(row.text) - len(row.text.lstrip())
            text.stylize(_STYLES[row.severity], first, first + len(row.text.split(maxsplit=1)[0]))
        console.print(text)
    if plan.suggestion is not None:
        console.print(Text(f"\n{plan.suggestion}"))


def load_objects(target: str) -> dict[str, Any]:
    """The objects that the callable returns, by keyword; a single object is ``model``."""
    call = _imported(target, "model", "train:build_model")
    try:
        built = call()
    except NotInstalledError:
        raise
    except Exception as error:
        traceback.print_exc()
        raise UsageError(f"--model {target}: {type(error).__name__}: {error}") from None
    return dict(built) if isinstance(built, Mapping) else {"model": built}


def _imported(target: str, flag: str, example: str) -> Any:
    """What MODULE:CALLABLE names."""
    module, colon, name = target.partition(":")
    if not (module and colon and name):
        raise UsageError(f"--{flag} {target!r} is not MODULE:CALLABLE, e.g. {example}")
    if "" not in sys.path:
        sys.path.insert(
            0, ""
        )  # like `python -m`: makes a script in the working directory importable
    try:
        if module not in sys.modules and importlib.util.find_spec(module) is not None:
            with _muted_import():
                importlib.import_module("tfckpt.live.private.tensorflow")
        imported: Any = importlib.import_module(module)
        if not flags.FLAGS.is_parsed():
            flags.FLAGS.mark_as_parsed()  # flags of the training script have their defaults
        return operator.attrgetter(name)(imported)
    except NotInstalledError:
        raise
    except Exception as error:
        if not _is_absent(error, module, name):
            traceback.print_exc()
        raise UsageError(f"--{flag} {target}: {type(error).__name__}: {error}") from None


@contextlib.contextmanager
def _muted_import() -> Iterator[None]:
    """Keep from the terminal what TensorFlow's C++ logs when it is imported, unless that fails."""
    if "tensorflow" in sys.modules:
        yield
        return
    sys.stderr.flush()
    with tempfile.TemporaryFile() as logged, os.fdopen(os.dup(2), "wb", closefd=True) as terminal:
        os.dup2(logged.fileno(), 2)
        try:
            yield
        except BaseException:
            logged.seek(0)
            terminal.write(logged.read())
            raise
        finally:
            os.dup2(terminal.fileno(), 2)


def _is_absent(error: Exception, module: str, name: str) -> bool:
    """Whether --model names a module or callable that does not exist."""
    if isinstance(error, ModuleNotFoundError):
        return f"{module}.".startswith(f"{error.name}.")
    return isinstance(error, AttributeError) and error.name in name.split(".")
