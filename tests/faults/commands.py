"""Commands that change a directory of checkpoints: each under one fault, and what is left of it.

`attempt` is the process under attack. `judge_many` asks plain TensorFlow what can be read then, and
what a next command or save makes of copies of the directory.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from faults.injection import Fault, Libc, Mode
from faults.oracle import brief
from faults.subjects import plain_step
from zoo.command_line import Ended, run

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Sequence

_OURS = {"checkpoint", ".tfckpt.lock"}
_PART = re.compile(r"(.+-\d+)(\.index|\.tfckpt\.json|\.data-\d{5}-of-(\d{5}))")
_EXISTS = "already exists and is not overwritten"


@dataclasses.dataclass(frozen=True)
class Command:
    """A command on the directory `run` of as many checkpoints.

    Attributes:
        words: of the command line, with ``{}`` for what is under attack.
        count: of checkpoints in `run`.
        plain: whether plain TensorFlow has written them.
        deletes: numbers of those that the command deletes.
        damaged: numbers of those whose data are damaged.
        place: the directory that it changes.
        makes: the file that it makes, if it is no checkpoint.
    """

    words: tuple[str, ...]
    count: int = 2
    plain: bool = False
    deletes: tuple[int, ...] = ()
    damaged: tuple[int, ...] = ()
    place: str = "run"
    makes: str = ""


_QUARANTINE = ("verify", "{}/run", "--quarantine")
COMMANDS = {
    "prune": Command(("prune", "{}/run", "--keep", "latest=2", "--yes"), 4, deletes=(1, 2)),
    "rewrite": Command(("rewrite", "{}/run/ckpt-2", "{}/run/slim-1", "--shard_size", "1K")),
    "rewrite elsewhere": Command(
        ("rewrite", "{}/run/ckpt-2", "{}/out/new/slim-1"), place="out/new"
    ),
    "convert npz": Command(("convert", "{}/run/ckpt-2", "{}/run/all.npz"), makes="all.npz"),
    "convert safetensors": Command(
        ("convert", "{}/run/ckpt-2", "{}/run/all.safetensors"), makes="all.safetensors"
    ),
    "quarantine": Command(_QUARANTINE, 4, damaged=(2, 4)),
    "quarantine plain": Command(_QUARANTINE, 3, plain=True, damaged=(1, 3)),
    "quarantine all": Command(_QUARANTINE, 1, damaged=(1,)),
}
NEXT = {
    "prune": ("prune", "{}", "--keep", "latest=9", "--yes", "--checkpoint_name", "ckpt"),
    "quarantine": ("verify", "{}", "--quarantine"),
}


def lay(name: str, root: str) -> None:
    """In a child: the directory as the command finds it."""
    what, directory = COMMANDS[name], Path(root) / "run"
    weights, more = tf.Variable(tf.zeros(300)), tf.Variable(tf.zeros(300))
    library: Any = tf.train if what.plain else tfckpt
    checkpoint = library.Checkpoint(weights=weights, more=more)
    manager = library.CheckpointManager(checkpoint, str(directory), None)
    for number in range(1, what.count + 1):
        weights.assign(tf.fill(300, float(number)))
        manager.save()
    for number in what.damaged:
        data = directory / f"ckpt-{number}.data-00000-of-00001"
        data.write_bytes(bytes(byte ^ 1 for byte in data.read_bytes()))


def attempt(name: str, root: str, log: str, fault: list[Any]) -> dict[str, Any]:
    """In a child: the command under a fault, and how many calls there were."""
    under = Libc()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    under.arm(root, Fault(Mode(fault[0]), *fault[1:]), descriptor)
    ended = _run(COMMANDS[name].words, root)
    under.disarm()
    return {"calls": under.counts(), "status": ended.status, "err": ended.err}


def judge_many(cases: list[tuple[str, str, str]]) -> list[dict[str, str]]:
    return [judge(*case) for case in cases]


def judge(name: str, root: str, work: str) -> dict[str, str]:
    """In a child: what is lost, what is left over, and what the next command does; "" if right."""
    what = COMMANDS[name]
    found = _seen(what, root, work)
    followed = {then: _followed(what, then, root, work) for then in ("again", "save", *NEXT)}
    for kind in ("lost", "named", "left"):
        texts = [f"after {then}: {one[kind]}" for then, one in followed.items() if one[kind]]
        found[f"{kind} then"] = "; ".join(texts)
    said = [f"{then}: {one['said']}" for then, one in followed.items() if one["said"]]
    return {**found, "misbehaved": "; ".join(said)}


def _followed(what: Command, then: str, root: str, work: str) -> dict[str, str]:
    copy = Path(f"{root}.{then}")
    shutil.copytree(root, copy, symlinks=True)
    try:
        place = copy / what.place
        said = _save(place) if then == "save" else _go_on(what, then, copy, Path(work) / what.place)
        seen = _seen(what, str(copy), work)
        return {**seen, "left": "" if said is None else seen["left"], "said": said or ""}
    except Exception as error:
        return {"lost": "", "named": "", "left": "", "said": brief(error)}
    finally:
        shutil.rmtree(copy)


def _save(place: Path) -> str:
    checkpoint = tfckpt.Checkpoint(weights=tf.Variable(tf.fill(300, 77.0)))
    path = tfckpt.CheckpointManager(checkpoint, str(place), None).save()
    newest = tf.train.latest_checkpoint(str(place))
    return "" if newest == path and plain_step(path) == 77 else f"newest is {newest}"


def _go_on(what: Command, then: str, copy: Path, done: Path) -> str | None:
    """What is wrong with how a command ends; None where it has nothing to do."""
    place = copy / what.place
    if then != "again":
        ended = _run(NEXT[then], str(place))
        refused = "has no checkpoint" in ended.err or "does not exist" in ended.err
        return None if refused else ended.err if "could not" in ended.err else ""
    ended = _run(what.words, str(copy))
    if ended.status not in (0, int(bool(what.damaged))) and _EXISTS not in ended.err:
        return f"status {ended.status}: {ended.err}"
    names, wanted = ({*tree(one)} - {".tfckpt.lock"} for one in (place, done))
    return "" if names == wanted else f"makes {sorted(names)}, not {sorted(wanted)}"


def _run(words: Sequence[str], root: str) -> Ended:
    return run(*(word.replace("{}", root) for word in words))


def _seen(what: Command, root: str, work: str) -> dict[str, str]:
    """What is lost, named wrongly by the state file, left over; ``work`` is without a fault."""
    lost = ""
    try:
        _check(what, Path(root), Path(work))
    except Exception as error:
        lost = brief(error)
    named = _misnamed(Path(root) / "run", Path(work) / "run")
    return {"lost": lost, "named": named, "left": left_over(what, root, work)}


def _check(what: Command, root: Path, work: Path) -> None:
    directory = root / "run"
    for number in {*range(1, what.count + 1)} - {*what.deletes} - {*what.damaged}:
        assert plain_step(str(directory / f"ckpt-{number}")) == number
    for index in root.rglob("slim-*.index"):
        if not index.parent.suffix:  # not while it is staged
            assert plain_step(str(index)[: -len(".index")]) == 2
    if what.makes and (made := directory / what.makes).exists():
        assert made.read_bytes() == (work / "run" / what.makes).read_bytes()
    before = Counter(_contents(what, Path(f"{work}.before")))
    assert before <= Counter(_contents(what, root)), "a file of a damaged checkpoint is lost"


def _misnamed(directory: Path, done: Path) -> str:
    """What the state file names, and is not there."""
    state = tf.train.get_checkpoint_state(str(directory))
    if state is None:
        return "the state file is lost" if (done / "checkpoint").exists() else ""
    named = {Path(path).name for path in state.all_model_checkpoint_paths}
    named.add(Path(state.model_checkpoint_path).name)
    files = set(os.listdir(directory))  # noqa: PTH208  names, not paths
    parts = {name: {f"{name}.index", f"{name}.data-00000-of-00001"} for name in named}
    return ", ".join(name for name in sorted(named) if not parts[name] <= files)


def _contents(what: Command, root: Path) -> list[bytes]:
    names = {f"ckpt-{number}" for number in what.damaged}
    found = [file for file in root.rglob("ckpt-*") if file.name.partition(".")[0] in names]
    return [file.read_bytes() for file in found if file.is_file() and _PART.fullmatch(file.name)]


def left_over(what: Command, root: str, work: str) -> str:
    """What belongs to no whole checkpoint: staged, marked, half moved, half deleted, empty."""
    wrong = []
    for directory in {Path(root) / "run", Path(root) / what.place}:
        names = set(tree(directory))
        here = {name for name in names if "/" not in name}
        parts = {name: match for name in here if (match := _PART.fullmatch(name))}
        for base in {match[1] for match in parts.values()}:
            kinds = [match for match in parts.values() if match[1] == base]
            data = [match for match in kinds if match[3]]
            whole = f"{base}.index" in here and len(data) == int(data[0][3] if data else -1)
            if not whole:
                wrong += sorted(match[0] for match in kinds)
        away = {name for name in names if name.startswith("quarantine/")}
        for moved in {name.split("/")[1] for name in away}:
            inside = {name.split("/")[-1] for name in away if name.split("/")[1] == moved}
            if not {f"{moved}.index", f"{moved}.data-00000-of-00001"} <= inside:
                wrong.append(f"quarantine/{moved}")
        wrong += sorted(names - away - {*parts} - _OURS - {what.makes})
    return ", ".join(wrong)


def tree(directory: Path) -> list[str]:
    """Files and empty directories, relative to a directory."""
    found = [one for one in directory.rglob("*") if not one.is_dir() or not any(one.iterdir())]
    return sorted(str(one.relative_to(directory)) for one in found)
