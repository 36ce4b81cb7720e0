"""How a program saves, and how another one restores, as people write it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from zoo.everyday.programs import Program

    Writer = Callable[[Program, Path, Any], str]
    Call = Callable[[Program, str, Mapping[str, Any] | None], Any]

# How a program saves


def by_tfckpt(program: Program, folder: Path, keras: Any) -> str:
    return str(tfckpt.Checkpoint(**program.objects).save(folder / "ckpt"))


def by_tensorflow(program: Program, folder: Path, keras: Any) -> str:
    return str(tf.train.Checkpoint(**program.objects).save(str(folder / "ckpt")))


def written(program: Program, folder: Path, keras: Any) -> str:
    return str(tf.train.Checkpoint(**program.objects).write(str(folder / "weights")))


def as_root(program: Program, folder: Path, keras: Any) -> str:
    return str(tf.train.Checkpoint(program.model).write(str(folder / "weights")))


def by_manager(library: Any) -> Writer:
    """The directory of a manager, after three saves."""

    def write(program: Program, folder: Path, keras: Any) -> str:
        made = tf.train if library is tf else tfckpt
        checkpoint = made.Checkpoint(**program.objects)
        manager = made.CheckpointManager(checkpoint, str(folder / "run"), max_to_keep=2)
        for _ in range(3):
            manager.save()
        return str(folder / "run")

    return write


def by_run(program: Program, folder: Path, keras: Any) -> str:
    config = {"version": 1, "manager": {"directory": str(folder / "run")}}
    return tfckpt.from_config(config, **program.objects).save(metrics={"val_loss": 1.0})


def weights(name: str) -> Writer:
    def write(program: Program, folder: Path, keras: Any) -> str:
        program.model.save_weights(folder / name)
        return str(folder / name)

    return write


def whole(name: str) -> Writer:
    def write(program: Program, folder: Path, keras: Any) -> str:
        program.model.save(folder / name)
        return str(folder / name)

    return write


def exported(program: Program, folder: Path, keras: Any) -> str:
    if keras.__name__ == "keras":
        program.model.export(folder / "export", verbose=False)
    else:
        program.model.save(folder / "export", save_format="tf")
    return str(folder / "export")


def saved_module(program: Program, folder: Path, keras: Any) -> str:
    tf.saved_model.save(program.model, str(folder / "export"))
    return str(folder / "export")


def by_callback(name: str, **options: Any) -> Writer:
    """Keras's own ModelCheckpoint, at the end of an epoch."""

    def write(program: Program, folder: Path, keras: Any) -> str:
        callback = keras.callbacks.ModelCheckpoint(str(folder / name), **options)
        callback.set_model(program.model)
        callback.on_train_begin()
        callback.on_epoch_begin(0)
        callback.on_epoch_end(0, {"val_loss": 0.5})
        return str(folder / name).format(epoch=1)

    return write


def by_saver(*words: str, slots: bool = False) -> Writer:
    """TF1's Saver: variables in scopes, as ``tf.layers.dense`` named them."""

    def write(program: Program, folder: Path, keras: Any) -> str:
        values = {name: variable.numpy() for name, variable in program.weights().items()}
        v1 = tf.compat.v1
        with tf.Graph().as_default(), v1.Session() as session:
            made = []
            for word, (name, value) in zip(words, values.items(), strict=True):
                part = f"{word}/{'kernel' if name.endswith('/0') else 'bias'}"
                made.append(v1.get_variable(part, initializer=value))
                if slots:
                    v1.get_variable(f"{part}/Adam", initializer=value * 0)
                    v1.get_variable(f"{part}/Adam_1", initializer=value * 0)
            if slots:
                v1.get_variable("beta1_power", initializer=0.9)
                v1.get_variable("beta2_power", initializer=0.9)
                v1.get_variable("global_step", initializer=tf.constant(7, tf.int64))
            session.run(v1.global_variables_initializer())
            return str(v1.train.Saver().save(session, str(folder / "model.ckpt"), global_step=7))

    return write


# What becomes of files


def _files(path: str) -> list[Path]:
    prefix = Path(path)
    return [each for each in prefix.parent.iterdir() if each.name.startswith(f"{prefix.name}.")]


def copied(name: str, *, record: bool = True, move: bool = False) -> Writer:
    """What tfckpt saved, under another file name: ``cp ckpt-1.* best.*``."""

    def write(program: Program, folder: Path, keras: Any) -> str:
        path = by_tfckpt(program, folder, keras)
        for file in _files(path):
            if record or not file.name.endswith(".json"):
                other = folder / file.name.replace(Path(path).name, name)
                other.parent.mkdir(exist_ok=True)
                (shutil.move if move else shutil.copy)(file, other)
        return str(folder / name)

    return write


def over(name: str, write_first: Writer, write: Writer) -> Writer:
    """Another program has written over the same name, in another way; its values count."""

    def both(program: Program, folder: Path, keras: Any) -> str:
        variables = {**program.weights(), **program.state()}
        meant = {name: variable.numpy() for name, variable in variables.items()}
        for variable in variables.values():
            variable.assign(tf.zeros_like(variable))
        write_first(program, folder, keras)
        for key, value in meant.items():
            variables[key].assign(value)
        write(program, folder, keras)
        return str(folder / name)

    return both


def at(name: str, library: Any) -> Writer:
    """Written under exactly this name."""

    def write(program: Program, folder: Path, keras: Any) -> str:
        made = tf.train if library is tf else tfckpt
        return str(made.Checkpoint(**program.objects).write(str(folder / name)))

    return write


# How a program restores


def restore(program: Program, path: str, policy: Mapping[str, Any] | None) -> Any:
    """``tfckpt.restore(path, model)``: the shortest call."""
    return tfckpt.restore(path, program.model, policy=policy)


def everything(program: Program, path: str, policy: Mapping[str, Any] | None) -> Any:
    """With all that the program has, by keyword."""
    return tfckpt.restore(path, **program.objects, policy=policy)


def drop_in(program: Program, path: str, policy: Mapping[str, Any] | None) -> Any:
    """``tfckpt.Checkpoint(…).restore(path)``, and what its refusal says."""
    if policy is not None:
        return everything(program, path, policy)
    return tfckpt.Checkpoint(**program.objects).restore(path).report


def consumed(program: Program, path: str, policy: Mapping[str, Any] | None) -> Any:
    """The same, and nothing may be left."""
    if policy is not None:
        return everything(program, path, policy)
    return tfckpt.Checkpoint(**program.objects).restore(path).assert_consumed().report


def of_manager(program: Program, path: str, policy: Mapping[str, Any] | None) -> Any:
    """``CheckpointManager.restore_or_initialize``."""
    if policy is not None:
        return everything(program, path, policy)
    checkpoint = tfckpt.Checkpoint(**program.objects)
    manager = tfckpt.CheckpointManager(checkpoint, path, max_to_keep=2)
    assert manager.restore_or_initialize() is not None
    return None


def by_config(program: Program, path: str, policy: Mapping[str, Any] | None) -> Any:
    """A config with a source elsewhere, and the policy that the refusal shows under ``policy``."""
    directory = Path(path).with_name("next run")
    source = {"path": path} if policy is None else {"path": path, "policy": dict(policy)}
    config = {"version": 1, "manager": {"directory": str(directory)}, "restore": source}
    return tfckpt.from_config(config, **program.objects).restore()
