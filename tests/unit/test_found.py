"""Which checkpoint a config means, several in one restore, and files that are missing."""

from __future__ import annotations

import shutil
from pathlib import Path
from string import Template
from typing import Any

import pytest
import tensorflow as tf
import yaml
from zoo.command_line import run
from zoo.restores import config, filled, numbers, same, stack

import tfckpt


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


def save(prefix: str, value: float, **more: Any) -> str:
    """A checkpoint in which ``x`` and ``y`` have the value; ``prefix`` is without the number."""
    return tfckpt.Checkpoint(x=tf.Variable(value), y=tf.Variable(value), **more).save(prefix)


def flip(path: str) -> None:
    """Damage that shows when a value is read; one bit of each byte, wherever the value is."""
    for data in Path(path).parent.glob(Path(path).name + ".data-*"):
        data.write_bytes(bytes(byte ^ 1 for byte in data.read_bytes()))


def prepare(words: str) -> None:
    """What the first column says: `run=2` saves, `run=2+` with a value more; `run/ckpt-1~flip`."""
    for word in words.split():
        if "=" in word:
            directory, _, value = word.partition("=")
            more = {"extra": tf.Variable(1.0)} if value.endswith("+") else {}
            save(f"{directory}/ckpt", float(value.strip("+")), **more)
            continue
        path, _, damage = word.partition("~")
        if damage == "flip":
            flip(path)
        elif damage == "tear":  # shows when it is opened
            Path(f"{path}.index").write_bytes(b"torn")
        elif damage == "unrecord":
            Path(f"{path}.tfckpt.json").unlink()
        elif damage == "debris":
            Path(path).parent.mkdir()
            Path(f"{path}.data-00000-of-00001").write_bytes(b"debris")
        else:
            Path(path).mkdir()


SHORT = {
    "LENIENT": "policy: {assert: existing_objects_matched}",
    "NEXT": "on_damaged: next",
    "X": "policy: {include: [x]}",
    "Y": "policy: {include: [y]}",
    "A": "{directory: a, policy: {include: [x]}}",
    "B": "{directory: b, policy: {include: [y]}}",
}
# what is there | the sources, with `or initialize` | what x and y get, or what is said |
# why others were passed over
FOUND = """\
a=1 b=2 | {directory: a}, {directory: b} | 1, 1
a=1 b=2 | {directory: b}, {directory: a} | 2, 2
a=1 b=2 | {path: b/ckpt-1}, {directory: a} | 2, 2
b=2 | {directory: none}, {directory: b} | 2, 2
b=2 empty | {directory: empty}, {directory: b} | 2, 2
b=2 | {path: none/ckpt-1}, {directory: b} | 2, 2 | no checkpoint at none/ckpt-1
b=2 empty | {path: empty/best}, {directory: b} | 2, 2 | no checkpoint at empty/best
 | {directory: none}, {path: zoo/net-9} or initialize | -1, -1 | no checkpoint at zoo/net-9
 | {directory: none}, {path: zoo/net-9} | NotFound: none, zoo/net-9
 | {directory: none} or error | NotFound: none
run=1 zoo=2 run/ckpt-1~flip | {directory: run}, {directory: zoo} or initialize | Damaged: ckpt-1
run=1 zoo=2 run/ckpt-1~tear | {directory: run}, {directory: zoo} | Damaged: on_damaged: next
run=1 z=2 run/ckpt-1~flip | {path: run/ckpt-1}, {directory: z} or initialize | Damaged: ckpt-1
run/ckpt-1~debris | {directory: run} or initialize | Damaged: ckpt-1: has data but no index
run=1 zoo=2 run/ckpt-1~flip | {directory: run, $NEXT}, {directory: zoo} | 2, 2 | run/ckpt-1
run=1 zoo=2 run/ckpt-1~tear | {path: run/ckpt-1, $NEXT}, {directory: zoo} | 2, 2 | run/ckpt-1
run=1 run/ckpt-1~tear | {directory: run, $NEXT} or initialize | Damaged: run/ckpt-1
run=1 run=2+ zoo=3 | {directory: run}, {directory: zoo} or initialize | Refused: extra
run=1 run=2+ zoo=3 | {directory: run, $NEXT}, {directory: zoo} | 3, 3 | extra
run=1 run=2 run=3 | {directory: run, select: 2} | 2, 2
run=1 run=2 run=3 | {directory: run, select: latest} | 3, 3
run=1 run=2 | {directory: run, select: 7}, {directory: b} or initialize | NotFound: 1, 2
run=1 run=2 run/ckpt-2~flip | {directory: run, select: 2} | Damaged: run/ckpt-2
run=1 run=2 run/ckpt-2~unrecord | {directory: run} | 1, 1 | its commit record
run=1 run=2 run/ckpt-2~unrecord run/ckpt-1~flip | {directory: run} | 2, 2 | ckpt-1
zoo=5+ | {directory: none}, {directory: zoo, $LENIENT} | 5, 5
a=1 b=2 | {all_of: [$A, {path: b/ckpt-1, $Y}]} | 1, 2
a=1 b=2 b/ckpt-1~flip | {all_of: [$A, {path: b/ckpt-1, $Y}]} | Damaged: b/ckpt-1
a=1 b=2 b/ckpt-1~flip | {all_of: [{path: b/ckpt-1, $Y}, $A]} | Damaged: b/ckpt-1
a=1 b=2 | {all_of: [{directory: a}, {directory: b, $Y}]} | Refused: would both restore it
a=1 b=2 | {all_of: [$A, {directory: b, $X}]} | Refused: would both restore it
a=1 | {all_of: [$A, {path: b/ckpt-1, $Y}]} or initialize | NotFound: but there is one in a
a=1 | {all_of: [$A, $B]} or initialize | NotFound: all_of: no checkpoint in b
a=1 b=2 c=3 b/ckpt-1~flip | {all_of: [$A, $B]}, {directory: c} | Damaged: b/ckpt-1
a=1 b=2 c=3 b/ckpt-1~flip | {all_of: [$A, $B], $NEXT}, {directory: c} | 3, 3 | b/ckpt-1
"""
ERRORS = {
    "NotFound": tfckpt.CheckpointNotFoundError,
    "Damaged": tfckpt.DamagedCheckpointError,
    "Refused": tfckpt.RefusedError,
}


@pytest.mark.parametrize("line", FOUND.splitlines())
def test_which_checkpoint_is_restored_or_why_none_is(line: str) -> None:
    there, sources, expected, *passed = Template(line).substitute(SHORT).split(" | ")
    prepare(there)
    sources, _, if_none = sources.partition(" or ")
    restore = {"first_of": yaml.safe_load(f"[{sources}]")}
    declared = {"version": 1, "restore": {**restore, **({"if_none": if_none} if if_none else {})}}
    x, y = tf.Variable(-1.0), tf.Variable(-1.0)
    kind, _, said = expected.partition(": ")
    if kind in ERRORS:
        with pytest.raises(ERRORS[kind]) as caught:
            tfckpt.restore(declared, x=x, y=y)
        assert said in " ".join(str(caught.value).split())
        assert "if_none: initialize" not in str(caught.value)
        assert (float(x), float(y)) == (-1, -1)
        return
    report = tfckpt.restore(declared, x=x, y=y)
    assert [float(x), float(y)] == yaml.safe_load(f"[{expected}]")
    assert bool(report.restored) == (expected != "-1, -1")
    assert len(report.rejected) == (2 if "unrecord run" in there else len(passed))
    assert not passed or any(passed[0] in each for each in report.rejected)
    assert not passed or if_none == "" or passed[0] in str(report)


def test_an_index_that_was_written_over_is_no_damage(caplog) -> None:
    weight = tf.Variable([1.0])
    tfckpt.Checkpoint(w=weight).write("best")
    tf.train.Checkpoint(w=tf.Variable([2.0])).write("best")
    assert Path("best.tfckpt.json").exists()
    assert tfckpt.restore("best", w=weight).path == "best"
    assert weight.numpy() == [2.0]
    (said,) = caplog.messages
    assert said.startswith("best: its files were written over since tfckpt saved it")


# Models with an optimizer


def test_a_run_asks_for_everything_in_its_own_directory_and_not_elsewhere(flavour) -> None:
    def declared(directory: str) -> dict[str, Any]:
        own = {"directory": directory}
        return {"version": 1, "manager": own, "restore": {"directory": "one"}}

    saved = filled(stack(flavour, "out"))
    tfckpt.from_config(declared("one"), saved).save()
    compiled = stack(flavour, "out")
    compiled.compile("adam", "mse")
    compiled.optimizer.build(compiled.trainable_variables)
    before = numbers(compiled)
    with pytest.raises(tfckpt.RefusedError, match="no optimizer state"):
        tfckpt.from_config(declared("one"), compiled).restore()
    same(numbers(compiled), before)
    tfckpt.from_config(declared("other"), compiled).restore()
    same(compiled.get_weights(), saved.get_weights())


# Data files that are missing

HINT = "a checkpoint needs all of its data files; copy this one next to the index"


def sharded(value: float, directory: str, number: int = 1) -> str:
    """Plain TensorFlow's checkpoint in two data files, as a training with parameter servers has it.

    In the second file is `y`.
    """
    saved = tf.train.Checkpoint(x=tf.Variable(value), y=tf.Variable(value + 1))
    whole = saved.save(f"{directory}/whole/ckpt")
    keys = [key for key, _ in tf.train.list_variables(whole)]
    parts = [key for key in keys if key[0] != "y"], [key for key in keys if key[0] == "y"]
    prefixes = [f"{directory}/whole/part_{n}" for n in range(2)]
    for prefix, part in zip(prefixes, parts, strict=True):
        tensors = [tf.constant(tf.train.load_variable(whole, key)) for key in part]
        tf.raw_ops.SaveV2(
            prefix=prefix, tensor_names=part, shape_and_slices=[""] * len(part), tensors=tensors
        )
    prefix = f"{directory}/ckpt-{number}"
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=prefixes, destination_prefix=prefix)
    shutil.rmtree(f"{directory}/whole")
    return prefix


def shard(prefix: str, number: int, of: int = 2) -> Path:
    return Path(f"{prefix}.data-{number:05d}-of-{of:05d}")


WAYS = [
    lambda prefix, **live: tfckpt.Checkpoint(**live).restore(prefix),
    lambda prefix, **live: tfckpt.restore(config(prefix), **live),
    lambda prefix, **live: tfckpt.plan(config(prefix), **live),
]


@pytest.mark.parametrize("restore", WAYS)
def test_a_data_file_that_is_missing_or_cut_off_is_named(restore) -> None:
    x, y = tf.Variable(-1.0), tf.Variable(-1.0)
    # of a weight, and of the object graph
    for number, held, named in ((1, "1 of the 4", " (value 'y')"), (0, "3 of the 4", "")):
        prefix = sharded(1.0, f"run{number}")
        shard(prefix, number).unlink()
        with pytest.raises(tfckpt.DamagedCheckpointError) as error:
            restore(prefix, x=x, y=y)
        assert str(error.value) == (
            f"{shard(prefix, number)}{named}: the data file is missing; it holds {held} values of "
            f"the checkpoint\n  {HINT}"
        )
    prefix = save("cut/ckpt", 2.0)
    data = shard(prefix, 0, 1)
    data.write_bytes(data.read_bytes()[:2])
    with pytest.raises(tfckpt.DamagedCheckpointError, match=r"truncated, or of another") as error:
        restore(prefix, x=x, y=y)
    assert str(error.value).startswith(f"{data} (value '")
    assert (float(x), float(y)) == (-1, -1)


def test_what_is_not_needed_may_be_missing_and_else_an_older_one_is_taken() -> None:
    """Plain TensorFlow reads the other values, too."""
    sharded(1.0, "run", 1)
    prefix = sharded(3.0, "run", 2)
    shard(prefix, 1).unlink()
    x, y = tf.Variable(-1.0), tf.Variable(-1.0)
    tfckpt.restore(config(prefix, include=["x"]), x=x, y=y)
    assert (float(x), float(y)) == (3, -1)
    report = tfckpt.restore({"version": 1, "restore": {"directory": "run"}}, x=x, y=y)
    assert (float(x), float(y), report.path) == (1, 2, "run/ckpt-1")
    assert f"{shard(prefix, 1)}" in report.rejected[0]
    assert "the data file is missing" in report.rejected[0]
    shown, checked = run("inspect", prefix), run("verify", prefix)
    assert (shown.status, checked.status) == (1, 1)
    missing = "the file is missing; it contains 1 of the 4 values of the checkpoint"
    assert f"{shard(prefix, 1)}: {missing}" in shown.err
    assert f"{shard(prefix, 1).name}: the data file is missing" in " ".join(checked.out.split())
