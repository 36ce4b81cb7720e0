"""Where checkpoints cannot be written, or were damaged: known before the first step."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from mistakes.scene import digits, eyes, fit, values

import tfckpt
import tfckpt.callbacks

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__)


def test_52_a_directory_that_cannot_be_made(flavour, refused) -> None:
    model = digits(flavour)
    with refused(model, error=tfckpt.SaveError) as seen:
        fit(model, tfckpt.callbacks.resume(model, "/proc/runs/a"), epochs=1)
    seen.says("/proc/runs/a", "cannot|could not", "directory|choose|make")


@contextlib.contextmanager
def another_process_saves_into(directory: Path) -> Iterator[None]:
    """It holds the lock by an open file of its own."""
    directory.mkdir(parents=True, exist_ok=True)
    holder = {"pid": os.getpid(), "host": "far", "since": "2026-01-02T03:04:05+00:00"}
    with (directory / ".tfckpt.lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps({**holder, "command": "train.py"}).encode() + b"\n")
        file.flush()
        yield


def test_54_a_second_training_in_the_same_directory(flavour, refused) -> None:
    model = digits(flavour)
    with (
        another_process_saves_into(Path("runs/a")),
        refused(model, error=tfckpt.InUseError) as seen,
    ):
        fit(model, tfckpt.callbacks.resume(model, "runs/a"), epochs=1)
    seen.says("another process", str(os.getpid()), "train.py", "directory of its own|end that")


def on_a_small_disk(flavour: str, place: str, options: str, room: int | None) -> dict[str, Any]:
    """A ``fit`` into a file system of its own; with ``room``, so many bytes of it are left."""
    import importlib

    from attacks.namespaces import make_read_only, mount_small, own_mounts

    own_mounts()
    mount_small(place, options)
    keras = importlib.import_module(flavour)
    model = digits(keras)
    directory = Path(place, "runs")
    fit(model, tfckpt.callbacks.resume(model, directory, verbose=0), epochs=1)
    if room is None:
        make_read_only(place)
    else:
        with contextlib.suppress(OSError), Path(place, "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        with Path(place, "filler").open("rb+") as file:
            file.truncate(max(0, Path(place, "filler").stat().st_size - room))
    model = digits(keras)
    before = [value.tobytes() for value in values(model)]
    with eyes() as seen:
        fit(model, tfckpt.callbacks.resume(model, directory), epochs=2)
    steps = int(model.optimizer.iterations.numpy())
    untouched = before == [value.tobytes() for value in values(model)][: len(before)]
    error = type(seen.error).__name__ if seen.error else ""
    sound = all(
        tfckpt.Checkpoint(model=model).restore(str(path.with_suffix("")))
        for path in directory.glob("*.index")
    )
    return {
        "seen": seen.text, "error": error, "steps": steps, "untouched": untouched, "sound": sound
    }  # fmt: skip


@pytest.mark.parametrize("flavour", ["keras", "tf_keras"])
@pytest.mark.parametrize(
    ("name", "room", "words"),
    [
        ("52 read-only", None, ["runs", "[Rr]ead-only"]),
        ("55 full", 0, ["runs", "[Nn]o space|full|room", r"needs at least \d+"]),
    ],
)
def test_52_55_a_disk(tmp_path, record_property, server, flavour, name, room, words) -> None:
    pytest.importorskip(flavour)
    (tmp_path / "disk").mkdir()
    arguments = flavour, str(tmp_path / "disk"), "size=512k", room
    outcome = server.run((HERE, "on_a_small_disk"), *arguments, timeout=120)
    if outcome.error and "NotPermittedError" in outcome.error:
        pytest.skip(outcome.error)
    found = outcome.result()
    record_property("seen", found["seen"])
    record_property("untouched", found["untouched"])
    from mistakes.scene import Seen

    seen = Seen()
    seen.printed = found["seen"]
    seen.says(*words)
    assert found["error"]
    assert found["sound"]
    assert found["untouched"], "known before the first step"


def damage(prefix: str) -> None:
    for data in Path(prefix).parent.glob(f"{Path(prefix).name}.data-*"):
        data.write_bytes(bytes(byte ^ 0xFF for byte in data.read_bytes()))


def test_56_the_newest_checkpoint_is_damaged(run, flavour, told) -> None:
    damage("runs/digits/ckpt-3")
    flavour.utils.set_random_seed(3)
    model = digits(flavour)
    with told() as seen:
        fit(model, tfckpt.callbacks.resume(model, run), epochs=3)
    seen.says("passed over", "ckpt-3", "checksum", "restored .*ckpt-2")


def test_the_one_that_was_asked_for_is_damaged(run, flavour, refused) -> None:
    damage("runs/digits/ckpt-3")
    flavour.utils.set_random_seed(3)
    model = digits(flavour)
    with refused(model, error=tfckpt.DamagedCheckpointError) as seen:
        tfckpt.restore("runs/digits/ckpt-3", model)
    seen.says("checksum", "nothing was restored", "restore another one", "tfckpt verify")


def test_57_every_checkpoint_is_damaged(run, flavour, refused) -> None:
    for number in (1, 2, 3):
        damage(f"runs/digits/ckpt-{number}")
    model = digits(flavour)
    with refused(model, error=tfckpt.DamagedCheckpointError) as seen:
        fit(model, tfckpt.callbacks.resume(model, run), epochs=3)
    seen.says("none of the checkpoints can be restored", "on_damaged: next|another directory")
