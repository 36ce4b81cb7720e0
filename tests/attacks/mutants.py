"""One mutator for each container of weights: no file may abort, hang, fill the memory or lie.

Each container is written once by its own writer. A mutant has damaged bytes, or parts that are
forged where the format lets one: a table or a record whose checksums are valid, a member of an
archive that is packed again, a header of its right length. It is listed, verified, read and
restored in a forked child of limited memory and time; only tfckpt's errors may come of it, and
after a refusal no variable has changed. A fault is shown with its number: the container, the seed
and the number make the mutant again.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import random
import resource
import shutil
import signal
import tempfile
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from attacks.damage import alter, forge_index, forge_record
from attacks.forging import mutate
from zoo.forkserver import ForkServer
from zoo.resident import peak, resident, status

MEMORY = 320 << 20  # what one mutant may take: `limits.SMALL`, and a copy of small parts
ADDRESSES = 2 << 30  # what the process may map beside what it has at its start
SECONDS = 20  # of processor time
ORBAX = Path(__file__).resolve().parents[1] / "golden" / "orbax" / "tensorflow" / "3"
EXTREME = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 1 << 24, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
EXTREME += (1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)


# What is written


def model_of(k: Any) -> Any:
    layers = [k.layers.Dense(4, name="hidden"), k.layers.BatchNormalization(name="norm")]
    model = k.Sequential([k.layers.Input((3,)), *layers, k.layers.Dense(2, name="head")])
    model.compile(k.optimizers.Adam(0.1), "mse")
    model.optimizer.build(model.trainable_variables)
    return model


def _by_tfckpt(place: Path, model: Any) -> str:
    import tfckpt

    return tfckpt.Checkpoint(model=model).save(str(place / "ckpt"))


def _by_tensorflow(place: Path, model: Any) -> str:
    import tensorflow as tf

    return tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(str(place / "ckpt"))


def _by_saver(place: Path, _: Any) -> str:
    import tensorflow as tf

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, shape in (("hidden/kernel", (3, 4)), ("hidden/bias", (4,))):
            tf.compat.v1.get_variable(name, shape)
        session.run(tf.compat.v1.global_variables_initializer())
        return str(tf.compat.v1.train.Saver().save(session, str(place / "model"), global_step=1))


def _exported(place: Path, model: Any) -> str:
    model.export(str(place / "exported"), verbose=False)
    return str(place / "exported")


def _saved_as(name: str) -> Callable[[Path, Any], str]:
    def save(place: Path, model: Any) -> str:
        model.save(str(place / name))
        return str(place / name)

    return save


def _weights_as(name: str, **options: Any) -> Callable[[Path, Any], str]:
    def save(place: Path, model: Any) -> str:
        model.save_weights(str(place / name), **options)
        return str(place / name)

    return save


def _h5_of_keras_2(place: Path, _: Any) -> str:
    import tf_keras

    model = model_of(tf_keras)
    model.save(str(place / "model.h5"))
    return str(place / "model.h5")


def _unzipped(place: Path, model: Any) -> str:
    model.save(str(place / "a.keras"))
    with zipfile.ZipFile(place / "a.keras") as archive:
        archive.extractall(place / "model.keras")
    (place / "a.keras").unlink()
    return str(place / "model.keras")


def _arrays_as(name: str) -> Callable[[Path, Any], str]:
    def export(place: Path, model: Any) -> str:
        import tfckpt

        with tempfile.TemporaryDirectory() as other:
            return tfckpt.export(_by_tfckpt(Path(other), model), str(place / name))

    return export


def _orbax(place: Path, _: Any) -> str:
    return str(shutil.copytree(ORBAX, place / "3"))


# How it is altered; each gets a directory of files


def _bytes(rng: random.Random, place: Path) -> None:
    path = _one_of(rng, place)
    path.write_bytes(mutate(rng, path.read_bytes() or b"\0"))


def _number(rng: random.Random, place: Path) -> None:
    """An integer of one to eight bytes anywhere, often near the start or the end, is extreme."""
    path = _one_of(rng, place)
    data = bytearray(path.read_bytes() or b"\0")
    width = rng.choice((1, 2, 4, 8))
    near = min(len(data), rng.choice((64, 512, 4096, len(data))))
    at = rng.randrange(near) if rng.randrange(3) else len(data) - 1 - rng.randrange(near)
    value = rng.choice(EXTREME) % (1 << 8 * width)
    data[at : at + width] = value.to_bytes(width, rng.choice(("little", "big")))
    path.write_bytes(data)


def _whole(rng: random.Random, place: Path) -> None:
    """A file is empty, gone, twice as long, what another one is, or a folder."""
    path, other = _one_of(rng, place), _one_of(rng, place)
    how = rng.randrange(5)
    content = path.read_bytes()
    if how < 3:
        path.write_bytes((b"", content * 2, other.read_bytes())[how])
    else:
        path.unlink()
    if how == 4:
        path.mkdir()


def _json(rng: random.Random, place: Path) -> None:
    """Places in a JSON file are others."""
    path = rng.choice(
        [each for each in _files(place) if each.suffix == ".json" or "." not in each.name]
    )
    with contextlib.suppress(ValueError):
        tree = json.loads(path.read_bytes())
        _alter_some(rng, tree)
        path.write_text(json.dumps(tree))


def _member(rng: random.Random, place: Path) -> None:
    """A member of an archive is another, and packed with its right checksum."""
    path = _one_of(rng, place)
    members = _members(path)
    name = rng.choice([*members])
    if name.endswith(".json") and rng.randrange(2):
        tree = json.loads(members[name])
        _alter_some(rng, tree)
        members[name] = json.dumps(tree).encode()
    elif rng.randrange(8):
        members[name] = mutate(rng, members[name] or b"\0")
    else:
        members[rng.choice(("", "../x", "/x", "a/" * 300, name + "/x", "x\0y"))] = members.pop(name)
    with zipfile.ZipFile(path, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as file:
        for each, content in members.items():
            file.writestr(zipfile.ZipInfo(each), content)


def _members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as file:
        return {name: file.read(name) for name in file.namelist()}


def _header(rng: random.Random, place: Path) -> None:
    """The header of a safetensors file is another, of its right length."""
    path = _one_of(rng, place)
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    tree = json.loads(data[8:end])
    _alter_some(rng, tree)
    header = json.dumps(tree).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + data[end:])


def _object(rng: random.Random, place: Path) -> None:
    """An object of an HDF5 file is another, a link, or of another shape."""
    import h5py
    import numpy as np

    path = _one_of(rng, place, ".h5")
    # what HDF5 itself does not let one do is another mutant
    refused = contextlib.suppress(ValueError, KeyError, RuntimeError, OSError)
    with refused, h5py.File(path, "r+") as file:
        names = list[str]()
        file.visit(names.append)
        name, other = rng.choice(names), rng.choice(names)
        how = rng.randrange(6)
        if how == 0:
            file[name].attrs[
                rng.choice(("name", "weight_names", "layer_names", "keras_version"))
            ] = rng.choice((np.zeros(3), "x" * 5000, [b"a", b"b"], b"\xff\0", 7))
        elif how == 1:
            del file[name]
            file[name] = rng.choice((h5py.SoftLink("/" + other), h5py.SoftLink("/" + name)))
        elif how == 2:
            del file[name]
            file[name] = rng.choice((np.zeros((0,)), np.zeros((3, 4), "complex64"), "text", 1.5))
        elif how == 3:
            file.move(name, rng.choice(("x", other + "_2", "a" * 3000, "ü", "layers/\n")))
        elif how == 4 and name not in other:
            file[f"{other}/{rng.choice(('0', 'vars'))}"] = file[name]
        else:
            del file[name]
            group = file.create_dataset(name, (1 << 20, 1 << rng.randrange(20)), "float64")
            group.attrs["name"] = other


def _alter_some(rng: random.Random, tree: Any) -> None:
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        alter(rng, tree)


def _files(place: Path) -> list[Path]:
    return sorted(path for path in place.rglob("*") if path.is_file())


def _one_of(rng: random.Random, place: Path, suffix: str = "") -> Path:
    return rng.choice([path for path in _files(place) if path.name.endswith(suffix)])


CHECKED = ("tfckpt", "tensorflow", "keras")  # each value has a checksum
DAMAGE = (_bytes, _number, _whole)
CONTAINERS: dict[str, tuple[Callable[[Path, Any], str], tuple[Any, ...]]] = {
    "tfckpt": (_by_tfckpt, (_bytes, _number, _whole, forge_record, forge_index)),
    "tensorflow": (_by_tensorflow, (*DAMAGE, forge_index)),
    "tf1": (_by_saver, (*DAMAGE, forge_index)),
    "saved model": (_exported, DAMAGE),
    "keras": (_saved_as("model.keras"), (_bytes, _number, _member, _member)),
    "weights": (_weights_as("model.weights.h5"), (_bytes, _number, _object)),
    "keras 2": (_h5_of_keras_2, (_bytes, _number, _object)),
    "shards": (_weights_as("model.weights.json", max_shard_size=1e-7), (*DAMAGE, _json, _object)),
    "directory": (_unzipped, (*DAMAGE, _json, _object)),
    "safetensors": (_arrays_as("model.safetensors"), (_bytes, _number, _header, _header)),
    "npz": (_arrays_as("model.npz"), (_bytes, _member)),
    "orbax": (_orbax, (*DAMAGE, _json)),
}


def write_all(directory: Path, names: Iterable[str]) -> dict[str, str]:
    """The path to open of each container, each in a folder of its own."""
    import keras

    paths = {}
    for name in names:
        (place := directory / name).mkdir()
        paths[name] = CONTAINERS[name][0](place, model_of(keras))
    return paths


# What follows runs in a child


@functools.cache
def _model() -> Any:
    import keras

    return model_of(keras)


def mutants(name: str, path: str, seed: int, numbers: list[int]) -> list[list[Any]]:
    """How each ended, ``[number, ending, fault]``; the last number printed is what aborts."""
    import tfckpt

    source, ended = Path(path).parent, list[list[Any]]()
    model = _model()
    before = [variable.numpy().tobytes() for variable in model.variables]
    written = _read(path) if name in CHECKED else None
    _limit()
    for number in numbers:
        print(number, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "place"
            shutil.copytree(source, place)
            rng = random.Random(f"{seed} {name} {number}")
            (how := rng.choice(CONTAINERS[name][1]))(rng, place)
            known = written if how in DAMAGE else None
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            taken, fault = resident(), ""
            try:
                ending = _tried(str(place / Path(path).name), model, known, number % 3 == 0)
            except tfckpt.TfckptError:
                ending = "refused"
            except Exception:
                ending, fault = "error", traceback.format_exc(limit=-6)
            signal.setitimer(signal.ITIMER_PROF, 0)
            if (took := peak() - taken) > MEMORY:
                ending, fault = "memory", f"it took {took >> 20} MiB"
        values = [variable.numpy().tobytes() for variable in model.variables]
        if ending == "refused" and values != before:
            ending, fault = "changed", "refused, and values have changed"
        before = values
        ended.append([number, ending, fault])
    return ended


def _tried(path: str, model: Any, known: set[bytes] | None, restores: bool) -> str:
    """List, verify, read and restore: what one of these refuses, another may do."""
    import tfckpt
    from tfckpt.tools.verification import verify_one

    sound = not verify_one(path).faults
    with contextlib.suppress(tfckpt.TfckptError):
        tfckpt.inspect(path)
    found = _read(path)
    assert known is None or found <= known, "a damaged value was read"
    if sound and Path(f"{path}.index").is_file():
        _read_by_tensorflow(path)
    if restores:
        tfckpt.restore(path, model)
    return "restored" if restores else "read"


def _read(path: str) -> set[bytes]:
    from tfckpt.stored.formats.open import open_checkpoint

    with open_checkpoint(path) as opened:
        keys = {entry.key for entry in opened.inventory.entries.values()}
        return {opened.values.read(key).tobytes() for key in keys}


def _read_by_tensorflow(path: str) -> None:
    """What is not refused does not abort TensorFlow, whatever error it has."""
    import tensorflow as tf

    reader = tf.train.load_checkpoint(path)
    for name, dtype in reader.get_variable_to_dtype_map().items():
        with contextlib.suppress(Exception):
            if dtype not in (tf.resource, tf.variant):
                reader.get_tensor(name)


def _limit() -> None:
    mapped = status("VmSize:")
    resource.setrlimit(resource.RLIMIT_AS, (mapped + ADDRESSES, mapped + ADDRESSES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


# What runs them


def run(
    server: ForkServer, paths: dict[str, str], seed: int, numbers: Iterable[int]
) -> tuple[dict[str, Counter[str]], list[str]]:
    """The endings by container of the mutants of these numbers; and the faults."""
    endings: dict[str, Counter[str]] = {name: Counter() for name in paths}
    faults = list[str]()
    waiting = [(name, [*numbers]) for name in paths]
    while waiting:
        requests = [("attacks.mutants:mutants", n, paths[n], seed, which) for n, which in waiting]
        most = max(len(which) for _, which in waiting)
        outcomes = server.run_many(requests, timeout=60 + 4.0 * most)
        again = []
        for (name, which), outcome in zip(waiting, outcomes, strict=True):
            if outcome.value is None:
                begun = [word for word in outcome.output.split() if word.isdecimal()]
                assert begun, outcome
                last = int(begun[-1])
                faults.append(f"{name} {last}: {outcome.error}\n{outcome.output[-3000:]}")
                endings[name]["died"] += 1
                rest = [n for n in which if n != last]
                again += [(name, rest)] if rest else []
                continue
            for number, ending, fault in outcome.value:
                endings[name][ending] += 1
                if fault:
                    faults.append(f"{name} {number}: {ending}\n{fault}")
        waiting = again
    return endings, faults
