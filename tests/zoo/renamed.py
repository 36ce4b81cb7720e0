"""Small trainings and saves in a child process in which one private name is another one.

TensorFlow and both flavours of Keras are imported once; each child is forked from there and renames
the name where tfckpt uses it, which then finds as much of it as if a release had renamed it.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import logging
import os
import re
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PROJECT = Path(__file__).resolve().parents[2]
ROOM = PROJECT / "tfckpt" / "live" / "private"
HEAVY = tuple(str(PROJECT / "tfckpt" / each) for each in ("live", "training", "manager"))
PUBLIC = {"Checkpoint", "_getframe", "train"}  # of TensorFlow and of Python


# Names


def names() -> dict[str, list[str]]:
    """Each private name of the room, or name that it looks up, with the modules that have it."""
    found: dict[str, list[str]] = {"_trackable_children": ["tensorflow"]}  # overridden by tfckpt's
    for file in sorted(ROOM.glob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        own = {n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
        own |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} | PUBLIC
        for name in sorted({*_in(tree)} - own):
            found.setdefault(name, []).append(file.stem)
    return found


def _in(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            words = node.value.split()
            if words and all(word.isidentifier() for word in words):
                yield from (word for word in words if _is_private(word))
        elif isinstance(node, ast.Attribute) and _is_private(node.attr):
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                yield node.attr
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in (
            "required",
            "optional",
        ):
            yield from (each.value for each in node.args[1:2] if isinstance(each, ast.Constant))
        elif isinstance(node, ast.With) and "needed" in ast.unparse(node.items[0]):
            inside = (each for one in node.body for each in ast.walk(one))
            yield from (each.attr for each in inside if isinstance(each, ast.Attribute))


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name.isidentifier()


class Renamed(importlib.abc.MetaPathFinder):
    """Finds modules as usual, and loads them with another name in their source."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._word = re.compile(rf"(?<![\w]){re.escape(name)}(?!\w)")
        self._named = re.compile(rf'(?<=")({name})(?=")|(?<=\.)({name})\b(?!\()')

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if not fullname.startswith("tfckpt."):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = SourceLoader(fullname, spec.loader.path, self)
        return spec

    def other(self, path: str, source: str) -> str:
        if _is_private(self._name) and path.startswith(HEAVY):
            return self._word.sub(f"{self._name}_renamed", source)
        if path.startswith(str(ROOM)):
            return self._named.sub(f"{self._name}_renamed", source)
        return source


class SourceLoader(importlib.machinery.SourceFileLoader):
    """Loads a module from another source than its file's, if a finder has one."""

    def __init__(self, fullname: str, path: str, renamed: Any) -> None:
        super().__init__(fullname, path)
        self._renamed = renamed

    def get_code(self, fullname: str) -> Any:
        source = Path(self.path).read_text(encoding="utf-8")
        other = self._renamed.other(self.path, source)
        return super().get_code(fullname) if other == source else compile(other, self.path, "exec")


# Scenarios: each returns what tfckpt has made of values, and what they are by other means


def _kerasses() -> dict[str, Any]:
    import keras
    import tf_keras

    return {"keras": keras, "tf_keras": tf_keras}


def _model(k: Any, optimizer: Callable[[], Any] | None = None) -> Any:
    import tensorflow as tf

    if k.__name__ == "tf_keras":
        k.backend.experimental.enable_tf_random_generator()

    class Blocks(k.layers.Layer):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.blocks = [k.layers.Dense(3, name="one"), k.layers.Dense(3, name="two")]

        def build(self, shape: Any) -> None:
            for each in self.blocks:
                each.build((None, 3))
            super().build(shape)

        def call(self, x: Any, training: bool = False) -> Any:
            if training:  # drawn from the generators of the process
                x += tf.random.normal((), stddev=0.1)
                x += k.random.normal((), stddev=0.1) if k.__name__ == "keras" else 0
            return self.blocks[1](self.blocks[0](x))

    k.utils.set_random_seed(1)
    model = k.Sequential(
        [
            *(k.Input((3,)), Blocks(), k.layers.Dropout(0.5, seed=3)),
            *(k.layers.BatchNormalization(), k.layers.Dense(1)),
        ]
    )
    model.compile(
        optimizer() if optimizer else k.optimizers.Adam(0.1),
        "mse",
        metrics=["mae"],
        run_eagerly=True,
    )
    return model


def _data(size: int = 12) -> Any:
    import tensorflow as tf

    x = tf.reshape(tf.range(3.0 * size), (size, 3)) / size
    generator = tf.random.Generator.from_seed(5)
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).shuffle(size)
    return data.map(lambda x, y: (x + generator.normal(()), y)).batch(3)


def _numbers(values: Any) -> list[Any]:
    import numpy as np

    return [np.asarray(value).tolist() for value in values]


def _state(k: Any, model: Any) -> list[Any]:
    variables = model.optimizer.variables
    variables = variables() if callable(variables) else variables
    return _numbers(v.numpy() for v in (*model.variables, *variables))


def saves(k: Any, directory: str, optimizer: Callable[[], Any] | None = None) -> tuple[Any, Any]:
    """Two saves and a restore into objects that have trained on, and into new ones."""
    import tfckpt

    model = _model(k, optimizer)
    model.fit(_data(), verbose=0)
    lookup = k.layers.StringLookup(vocabulary=["a", "b"])
    checkpoint = tfckpt.Checkpoint(model=model, optimizer=model.optimizer, lookup=lookup)
    checkpoint.save(f"{directory}/ckpt")
    model.fit(_data(), verbose=0)
    path, expected = checkpoint.save(f"{directory}/ckpt"), _state(k, model)
    model.fit(_data(), verbose=0)
    checkpoint.restore(path).assert_consumed()
    found = [_state(k, model)]
    other, lookup = _model(k, optimizer), k.layers.StringLookup()
    again = tfckpt.Checkpoint(model=other, optimizer=other.optimizer, lookup=lookup)
    again.restore(path)
    found += [_state(k, other), lookup.get_vocabulary()]
    return found, [expected, expected, ["[UNK]", "a", "b"]]


def fits(k: Any, directory: str) -> tuple[Any, Any]:
    """A training that is interrupted and resumed, and then found finished."""
    import tfckpt

    class Stop(k.callbacks.Callback):
        seen = 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.seen += 1
            if self.seen == 5:
                raise KeyboardInterrupt

    def trained(*callbacks: Any, resumes: bool = True) -> Any:
        k.backend.clear_session()
        model = _model(k)
        if resumes:
            callbacks += (tfckpt.callbacks.resume(model, directory, save_freq=2),)
        held = k.callbacks.EarlyStopping("loss", patience=2, start_from_epoch=0)
        history = model.fit(
            _data(9), epochs=2, verbose=0, validation_data=_data(3), callbacks=[held, *callbacks]
        )
        return _state(k, model), history.history["loss"], held.wait

    expected = trained(resumes=False)
    with contextlib.suppress(KeyboardInterrupt):
        trained(Stop())
    return [trained(), trained()], [expected, expected]


def plain(k: Any, directory: str) -> tuple[Any, Any]:
    """Variables, an iterator and a table, in the background, and a variable that comes later."""
    import numpy as np
    import tensorflow as tf

    import tfckpt

    def made() -> dict[str, Any]:
        module, table = tf.Module(), tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)
        module.v = tf.Variable([1.0, 2.0])
        module.big = tf.Variable(tf.zeros([300, 300]))
        data = tf.data.Dataset.range(9).shuffle(9, seed=4)
        return {"module": module, "table": table, "iterator": iter(data), "step": tf.Variable(0)}

    objects = made()
    objects["table"].insert(tf.constant(["a"]), tf.constant([5], tf.int64))
    objects["module"].w = tf.Variable(7.0)
    objects["module"].big.assign_add(tf.ones([300, 300]))
    next(objects["iterator"])
    checkpoint = tfckpt.Checkpoint(**objects)
    options = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)
    for step in (1, 2):
        objects["step"].assign(step)
        path = checkpoint.save(f"{directory}/ckpt", options=options)
    checkpoint.sync()
    expected = [int(each) for each in objects["iterator"]]
    others = made()
    status = tfckpt.Checkpoint(**others).restore(path)
    others["module"].w = tf.Variable(0.0)
    status.expect_partial()
    manager = tf.train.CheckpointManager(tfckpt.Checkpoint(v=tf.Variable(1)), directory + "/m", 2)
    record = Path(manager.save() + ".tfckpt.json").exists()
    key, module = tf.constant(["a"]), others["module"]
    found = [int(others["step"]), float(module.w), float(np.sum(module.big)), record]
    found += [int(others["table"].lookup(key)[0]), [int(each) for each in others["iterator"]]]
    return found, [2, 7.0, 90000.0, True, 5, expected]


def mirrored(k: Any, directory: str) -> tuple[Any, Any]:
    """Variables with a copy for each of two replicas, one of them summed."""
    import tensorflow as tf

    import tfckpt

    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        v = tf.Variable([1.0, 2.0])
        total = tf.Variable(
            4.0,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )
    path = tfckpt.Checkpoint(v=v, total=total).save(f"{directory}/ckpt")
    before = float(total.read_value())
    v.assign([0.0, 0.0])
    tfckpt.Checkpoint(v=v, total=total).restore(path)
    values = [each.numpy().tolist() for each in v.values]
    return [values, float(total.read_value())], [[[1.0, 2.0]] * 2, before]


def legacy(k: Any, directory: str) -> tuple[Any, Any]:
    return saves(k, directory, lambda: k.optimizers.legacy.Adam(0.1))


def scaled(k: Any, directory: str) -> tuple[Any, Any]:
    mixed = k.mixed_precision
    return saves(k, directory, lambda: mixed.LossScaleOptimizer(k.optimizers.Adam(0.1)))


SCENARIOS: dict[str, tuple[Callable[[Any, str], tuple[Any, Any]], str]] = {
    "saves": (saves, "keras"),
    "saves of tf_keras": (saves, "tf_keras"),
    "legacy optimizer": (legacy, "tf_keras"),
    "scaled optimizer": (scaled, "tf_keras"),
    "fits": (fits, "keras"),
    "fits of tf_keras": (fits, "tf_keras"),
    "plain": (plain, "keras"),
    "mirrored": (mirrored, "keras"),
}
_OF_KERAS, _OF_TF_KERAS = (
    ("saves", "fits"),
    ("saves of tf_keras", "legacy optimizer", "scaled optimizer"),
)
OF_MODULES: dict[str, Sequence[str]] = {
    "attributes": ("saves",),
    "callbacks": ("fits", "fits of tf_keras"),
    "either_keras": (*_OF_KERAS, "saves of tf_keras"),
    "fit": ("fits", "fits of tf_keras"),
    "keras": _OF_KERAS,
    "runtime": ("plain", "fits", "mirrored"),
    "tensorflow": ("plain", "saves", "mirrored"),
    "tf_data": ("plain", "fits"),
    "tf_keras": (*_OF_TF_KERAS, "fits of tf_keras"),
}


# One child


class _Said(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: Any) -> None:
        self.lines.append(record.getMessage())


def outcome(scenario: str) -> tuple[str, str]:
    """``exact``, ``refused``, ``other values`` or ``error``, and what was said or raised."""
    sys.stdout = io.StringIO()
    from absl import logging as absl_logging

    run, flavour = SCENARIOS[scenario]
    said = _Said()
    absl_logging.get_absl_logger().addHandler(said)
    try:
        from tfckpt.errors import TfckptError

        with tempfile.TemporaryDirectory() as directory:
            found, expected = run(_kerasses()[flavour], directory)
    except BaseException as error:
        if type(error).__name__ in {each.__name__ for each in _all_below(TfckptError)}:
            return "refused", f"{type(error).__name__}: {error}".split("\n")[0]
        last = traceback.extract_tb(error.__traceback__)[-1]
        return "error", f"{error!r} at {last.filename}:{last.lineno}"
    finally:
        absl_logging.get_absl_logger().removeHandler(said)
    said.lines += [line for line in sys.stdout.getvalue().splitlines() if line.strip()]
    same = json.dumps(found) == json.dumps(expected)
    return "exact" if same else "other values", "\n".join(dict.fromkeys(said.lines))


def _all_below(cls: type) -> Iterator[type]:
    yield cls
    for each in cls.__subclasses__():
        yield from _all_below(each)


def in_child(name: str, scenarios: Sequence[str], *, seconds: float = 600) -> dict[str, Any]:
    """Fork, rename, and run scenarios: each one's outcome."""
    import selectors

    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.close(reading)
        result: dict[str, Any] = {}
        with os.fdopen(writing, "w", encoding="utf-8") as pipe:
            try:
                sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
                if name:
                    sys.meta_path.insert(0, Renamed(name))
                import tensorflow as tf

                cpu = tf.config.list_physical_devices("CPU")[0]
                two = [tf.config.LogicalDeviceConfiguration()] * 2
                tf.config.set_logical_device_configuration(cpu, two)
                for scenario in scenarios:
                    result[scenario] = outcome(scenario)
            except BaseException as error:
                result[""] = ("error", repr(error))
            json.dump(result, pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe, selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        text = pipe.read() if selector.select(seconds) else ""
    if not text:
        os.kill(child, 9)
    os.waitpid(child, 0)
    return json.loads(text) if text else {"": ("error", "the child hangs or has died")}


def judged(result: Any, known: Any) -> str:
    """``exact``, ``said``, ``refused``, ``silent`` or ``error``; ``known``: without a new name."""
    kind, text = result
    if kind != "other values":
        return str(kind)
    return "said" if {*_lines(text)} - {*_lines(known[1])} else "silent"


def _lines(text: str) -> list[str]:
    return [re.sub(r"/tmp\S*|/dev/shm\S*|\d", "", line) for line in text.splitlines()]


def main(arguments: Sequence[str]) -> None:
    """``renamed.py [NAME …]``: for each name and scenario a line of JSON."""
    sys.path.insert(0, str(PROJECT))
    import keras  # noqa: F401
    import tensorflow  # noqa: F401
    import tf_keras  # noqa: F401

    known = names()
    baseline = in_child("", list(SCENARIOS))
    for scenario, result in baseline.items():
        print(json.dumps(["", scenario, judged(result, result), result[1]]), flush=True)
    for name in arguments or known:
        modules = known.get(name, ["tensorflow"])
        scenarios = dict.fromkeys(each for module in modules for each in OF_MODULES[module])
        for scenario, result in in_child(name, list(scenarios)).items():
            line = name, scenario, judged(result, baseline.get(scenario, ("", ""))), result[1]
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
