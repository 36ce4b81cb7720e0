"""``tfckpt.export``: a checkpoint as a file for other programs.

Without a model, the suffix decides: ``.npz`` or ``.safetensors``, which hold arrays by name, here
by canonical names. With one, it is restored first; then Keras writes ``.weights.h5``, and any other
name is the prefix of a checkpoint: only a model knows the layouts of these two.

What is no array of numbers (strings, tables, iterators) is left out and named. A number of a dtype
that the format does not have is refused, so that no weight is missing.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from absl import logging

from tfckpt.core.text import listed
from tfckpt.errors import (
    ARGUMENTS,
    NotInstalledError,
    PolicyError,
    Problem,
    UnsupportedCheckpointError,
)
from tfckpt.policy import Policy
from tfckpt.policy.load import has_config_name
from tfckpt.stored.bundles.bundle import OPAQUE, index_path
from tfckpt.stored.commits.new_file import new_file_by_name, refuse_existing
from tfckpt.stored.formats.safetensors import METADATA, ROLES, TENSORS
from tfckpt.tools.find_checkpoint import find, path_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np

    from tfckpt.core.inventory import Entry

    _Values = Iterable[tuple[Entry, np.ndarray]]

_Policy: TypeAlias = Policy | Mapping[str, Any] | None
_WEIGHTS = ".weights.h5"
_NO_PREFIX = (".npz", ".safetensors", ".h5", ".keras", ".pt", ".pb", ".onnx", ".tflite", ".index")
_NO_NUMBERS = ("string", *OPAQUE)
_DTYPES = {
    ".npz": {*TENSORS, "complex128"} - {"bfloat16", "float8_e4m3fn", "float8_e5m2"},
    ".safetensors": {*TENSORS},
}


def export(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    model: Any = None,
    *,
    policy: _Policy = None,
) -> str:
    """Write a checkpoint for other programs, as ``tfckpt export`` does, and return the target.

    Args:
        source: as for :func:`tfckpt.inspect`; with a model, as for :func:`tfckpt.restore`.
        target: a new file, `.npz` or `.safetensors`; with a model `.weights.h5`, or the prefix of
            a checkpoint.
        model: a built model, or a dict of objects by keyword, which is restored and then written.
        policy: of that restore; by default, all of the model is restored from what may hold more.

    Raises:
        NameTakenError: the target exists.
        TfckptError: of a read or a restore; or the format cannot hold a number.

    >>> import keras, numpy, tempfile, tfckpt
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="out")])
    >>> path = tfckpt.Checkpoint(model=model).save(tempfile.mkdtemp() + "/ckpt")
    >>> numpy.load(tfckpt.export(path, f"{path}.npz"))["model/out/kernel"].shape
    (4, 2)
    """
    objects = model if isinstance(model, Mapping) else {"model": model}
    build = None if model is None else lambda: objects
    return exported(path_of(source), os.fspath(target), build, policy, say=logging.warning)


def exported(
    source: str,
    target: str,
    build: Callable[[], Mapping[str, Any]] | None,
    policy: _Policy,
    *,
    say: Callable[[str], object],
) -> str:
    """The same; ``build`` makes the objects, ``say`` is called with what a person should know."""
    if build is not None:
        return _from_objects(source, target, build, policy)
    if policy is not None:
        raise _misuse("`policy` is for a restore into `model`, which is missing")
    if (suffix := Path(target).suffix) not in _DTYPES or "://" in target:
        what = "without `model`, it is a local .npz or .safetensors"
        raise _misuse(f"{target!r} cannot be written; {what}")
    found = find(source)
    with found.checkpoint as stored, new_file_by_name(target, suffix) as path:
        for reason in found.rejected.values():
            say(f"passed over: {reason}; using {stored.prefix}")
        entries = stored.inventory.entries.values()
        numbers = [e for e in entries if e.shape is not None and e.dtype not in _NO_NUMBERS]
        for entry in numbers:
            _check(entry, suffix, stored.prefix)
        if others := sorted({e.name for e in entries} - {e.name for e in numbers}):
            say(f"{target}: left out, since it holds only numbers: {listed(others)}")
        values = ((entry, stored.values.read(entry.key)) for entry in numbers)
        (_write_npz if suffix == ".npz" else _write_safetensors)(path, values)
    return target


def _from_objects(
    source: str, target: str, build: Callable[[], Mapping[str, Any]], policy: _Policy
) -> str:
    """Restore, then save as Keras or TensorFlow do."""
    weights = target.endswith(_WEIGHTS)
    if not weights and target.endswith(_NO_PREFIX):
        what = f"with `model`, it ends with {_WEIGHTS}, or is the prefix of a checkpoint"
        raise _misuse(f"{target!r} cannot be written; {what}")
    refuse_existing(target if weights else index_path(target))
    from tfckpt.calls import restore
    from tfckpt.live.checkpoint import Checkpoint

    objects = build()
    if weights and not hasattr(objects.get("model"), "save_weights"):
        raise _misuse("`model` must be a Keras model, or a dict with one as 'model'")
    if policy is None and not has_config_name(source):
        policy = Policy(name="export", api="read", on_unexpected="ignore")
    restore(source, policy=policy, **objects)
    if not weights:
        return Checkpoint(**objects).write(target)
    with new_file_by_name(target, _WEIGHTS) as path:
        objects["model"].save_weights(path)
    return target


def _check(entry: Entry, suffix: str, path: str) -> None:
    """Raise UnsupportedCheckpointError for a number that the format cannot hold."""
    known = entry.dtype in _DTYPES[suffix]
    if known and entry.name != METADATA and "\0" not in entry.name:
        return
    message = f"{suffix} cannot hold {'a value of this name' if known else entry.dtype}"
    hint = ".safetensors holds bfloat16, .npz complex128, and a checkpoint all; it needs a model"
    raise UnsupportedCheckpointError(message, path=path, name=entry.name, hint=hint)


def _write_npz(path: str, values: _Values) -> None:
    """As ``numpy.savez`` does, one value at a time."""
    import numpy as np

    with zipfile.ZipFile(path, "w") as archive:
        for entry, value in values:
            member = zipfile.ZipInfo(f"{entry.name}.npy")  # with a fixed date
            with archive.open(member, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, value, allow_pickle=False)


def _write_safetensors(path: str, values: _Values) -> None:
    """With the roles of the values, which also say that their names are canonical."""
    import numpy as np

    try:
        from safetensors import SafetensorError
        from safetensors.numpy import save_file
    except ImportError as error:
        message = f"the package that writes safetensors is not installed ({error})"
        hint = "pip install 'tfckpt[safetensors]' installs it; .npz needs none"
        raise NotInstalledError(message, hint=hint) from error
    arrays, roles = dict[str, Any](), dict[str, str]()
    for entry, value in values:
        arrays[entry.name], roles[entry.name] = np.asarray(value, order="C"), entry.role.value
    (file := Path(path)).touch()
    mode = file.stat().st_mode
    try:
        save_file(arrays, path, {ROLES: json.dumps(roles, ensure_ascii=False)})
    except SafetensorError as error:
        raise OSError(str(error)) from error
    file.chmod(mode)  # it has replaced the file by one that others cannot read


def _misuse(message: str) -> PolicyError:
    return PolicyError(ARGUMENTS, [Problem(message)])
