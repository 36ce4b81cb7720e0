"""How a program saves, and how another one restores, as people write it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

import tfckpt
from zoo.everyday.programs import Program

Writer = Callable[[Program, Path, Any], str]  # program, folder, Keras → the path
Policy = Mapping[str, Any] | None
Call = Callable[..., Any]

# How a program saves


def saved(library: Any) -> Writer:
    return lambda program, folder, k: str(
        _library(library).Checkpoint(**program.objects).save(str(folder / "ckpt"))
    )


OURS, TENSORFLOW = saved(tfckpt), saved(tf)


def at(name: str, library: Any) -> Writer:
    """Written under exactly this name."""
    return lambda program, folder, k: str(
        _library(library).Checkpoint(**program.objects).write(str(folder / name))
    )


def _library(library: Any) -> Any:
    return tf.train if library is tf else library


def as_root(program: Program, folder: Path, k: Any) -> str:
    return str(tf.train.Checkpoint(program.model).write(str(folder / "weights")))


def by_manager(library: Any) -> Writer:
    """The directory of a manager, after three saves."""

    def write(program: Program, folder: Path, k: Any) -> str:
        made = _library(library)
        checkpoint = made.Checkpoint(**program.objects)
        manager = made.CheckpointManager(checkpoint, str(folder / "run"), max_to_keep=2)
        for _ in range(3):
            manager.save()
        return str(folder / "run")

    return write


def by_run(program: Program, folder: Path, k: Any) -> str:
    config = {"version": 1, "manager": {"directory": str(folder / "run")}}
    return tfckpt.from_config(config, **program.objects).save(metrics={"val_loss": 1.0})


def by_keras(method: str, name: str) -> Writer:
    def write(program: Program, folder: Path, k: Any) -> str:
        getattr(program.model, method)(folder / name)
        return str(folder / name)

    return write


def weights(name: str) -> Writer:
    return by_keras("save_weights", name)


def whole(name: str) -> Writer:
    return by_keras("save", name)


def exported(program: Program, folder: Path, k: Any) -> str:
    if not hasattr(program.model, "compile"):  # a tf.Module
        tf.saved_model.save(program.model, str(folder / "export"))
    elif k.__name__ == "keras":
        program.model.export(folder / "export", verbose=False)
    else:
        program.model.save(folder / "export", save_format="tf")
    return str(folder / "export")


# What becomes of files


def copied(name: str, *, record: bool = True, move: bool = False) -> Writer:
    """What tfckpt saved, under another file name: ``cp ckpt-1.* best.*``."""

    def write(program: Program, folder: Path, k: Any) -> str:
        path = Path(OURS(program, folder, k))
        for file in [*path.parent.glob(f"{path.name}.*")]:
            if record or file.suffix != ".json":
                other = folder / file.name.replace(path.name, name)
                other.parent.mkdir(exist_ok=True)
                (shutil.move if move else shutil.copy)(file, other)
        return str(folder / name)

    return write


def over(name: str, write_first: Writer, write: Writer) -> Writer:
    """Another program has written over the same name, in another way; its values count."""

    def both(program: Program, folder: Path, k: Any) -> str:
        variables = {**program.weights(), **program.state()}
        meant = {name: variable.numpy() for name, variable in variables.items()}
        for variable in variables.values():
            variable.assign(tf.zeros_like(variable))
        write_first(program, folder, k)
        for key, value in meant.items():
            variables[key].assign(value)
        write(program, folder, k)
        return str(folder / name)

    return both


# How a program restores


def restore(program: Program, path: str, policy: Policy = None) -> Any:
    """``tfckpt.restore(path, model)``: the shortest call."""
    return tfckpt.restore(path, program.model, policy=policy)


def everything(program: Program, path: str, policy: Policy = None) -> Any:
    """With all that the program has, by keyword."""
    return tfckpt.restore(path, **program.objects, policy=policy)


def by_config(program: Program, path: str, policy: Policy = None) -> Any:
    """A config with a source elsewhere, and the policy that the refusal shows under ``policy``."""
    directory = Path(path).with_name("next run")
    source = {"path": path} if policy is None else {"path": path, "policy": dict(policy)}
    config = {"version": 1, "manager": {"directory": str(directory)}, "restore": source}
    return tfckpt.from_config(config, **program.objects).restore()


# What these refuse is restored by ``everything`` with a policy.


def drop_in(program: Program, path: str) -> Any:
    return tfckpt.Checkpoint(**program.objects).restore(path).report


def partially(program: Program, path: str) -> Any:
    return tfckpt.Checkpoint(**program.objects).restore(path).expect_partial().report


def consumed(program: Program, path: str) -> Any:
    return tfckpt.Checkpoint(**program.objects).restore(path).assert_consumed().report


def of_manager(program: Program, path: str) -> Any:
    checkpoint = tfckpt.Checkpoint(**program.objects)
    manager = tfckpt.CheckpointManager(checkpoint, path, max_to_keep=2)
    assert manager.restore_or_initialize() is not None


WITH_POLICY = (restore, by_config)
