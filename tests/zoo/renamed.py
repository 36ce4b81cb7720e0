"""Small trainings and saves in a child process in which one private name is another one.

TensorFlow and both flavours of Keras are imported once; each child is forked from there and renames
the name where tfckpt uses it, which then finds as much of it as if a release had renamed it.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import io
import json
import logging
import re
import sys
import tempfile
import traceback
from pathlib import Path

import numpy as np
import tensorflow as tf

from zoo.models import stack

PROJECT = Path(__file__).resolve().parents[2]
ROOM = PROJECT / "tfckpt" / "live" / "private"
HEAVY = tuple(str(PROJECT / "tfckpt" / each) for each in ("live", "training", "manager"))
PUBLIC = {"Checkpoint", "_getframe", "train"}  # of TensorFlow and of Python


# Names


def names():
    """Each private name of the room, or name that it looks up, with the modules that have it."""
    found = {"_trackable_children": ["tensorflow"]}  # overridden by tfckpt's
    for file in sorted(ROOM.glob("*.py")):
        nodes = [*ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
        own = {getattr(node, "name", getattr(node, "id", "")) for node in nodes} | PUBLIC
        for name in sorted({name for node in nodes for name in _in(node)} - own):
            found.setdefault(name, []).append(file.stem)
    return found


def _in(node):
    match node:
        case ast.Constant(value=str(text)) if all(word.isidentifier() for word in text.split()):
            yield from filter(_is_private, text.split())
        case ast.Attribute(value=ast.Name(id="self" | "cls")):
            return
        case ast.Attribute(attr=name) if _is_private(name):
            yield name
        case ast.Call(func=ast.Name(id="optional"), args=[_, ast.Constant(value=name), *_]):
            yield str(name)
        case ast.With(items=[first, *_]) if "needed" in ast.unparse(first):
            inside = (each for one in node.body for each in ast.walk(one))
            yield from (each.attr for each in inside if isinstance(each, ast.Attribute))


def _is_private(name):
    return name.startswith("_") and not name.endswith("__") and name.isidentifier()


class Renamed(importlib.abc.MetaPathFinder):
    """Finds modules as usual, and loads them with another name in their source."""

    def __init__(self, name):
        self._name = name
        self._word = re.compile(rf"(?<![\w]){re.escape(name)}(?!\w)")
        self._named = re.compile(rf'(?<=")({name})(?=")|(?<=\.)({name})\b(?!\()')

    def find_spec(self, fullname, path=None, target=None):
        if not fullname.startswith("tfckpt."):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = SourceLoader(fullname, spec.loader.path, self)
        return spec

    def other(self, path, source):
        if _is_private(self._name) and path.startswith(HEAVY):
            return self._word.sub(f"{self._name}_renamed", source)
        if path.startswith(str(ROOM)):
            return self._named.sub(f"{self._name}_renamed", source)
        return source


class SourceLoader(importlib.machinery.SourceFileLoader):
    """Loads a module from its file with another name in it."""

    def __init__(self, fullname, path, renamed):
        super().__init__(fullname, path)
        self._renamed = renamed

    def get_code(self, fullname):
        source = Path(self.path).read_text(encoding="utf-8")
        other = self._renamed.other(self.path, source)
        return super().get_code(fullname) if other == source else compile(other, self.path, "exec")


# Scenarios: each returns what tfckpt has made of values, and what they are by other means


def _model(k, optimizer=None):
    if k.__name__ == "tf_keras":
        k.backend.experimental.enable_tf_random_generator()

    class Blocks(k.layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.blocks = [k.layers.Dense(3, name="one"), k.layers.Dense(3, name="two")]

        def build(self, shape):
            for each in self.blocks:
                each.build((None, 3))
            super().build(shape)

        def call(self, x, training=False):
            if training:  # drawn from the generators of the process
                x += tf.random.normal((), stddev=0.1)
                x += k.random.normal((), stddev=0.1) if k.__name__ == "keras" else 0
            return self.blocks[1](self.blocks[0](x))

    k.utils.set_random_seed(1)
    layers = Blocks(), k.layers.Dropout(0.5, seed=3), k.layers.BatchNormalization()
    model = stack(k, *layers, k.layers.Dense(1))
    made = optimizer() if optimizer else k.optimizers.SGD(0.1, momentum=0.9)
    model.compile(made, "mse", metrics=["mae"], run_eagerly=True)
    return model


def _data(size=12):
    x = tf.reshape(tf.range(3.0 * size), (size, 3)) / size
    generator = tf.random.Generator.from_seed(5)
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).shuffle(size)
    return data.map(lambda x, y: (x + generator.normal(()), y)).batch(3)


def _state(model):
    variables = model.optimizer.variables
    variables = variables() if callable(variables) else variables
    return [np.asarray(v.numpy()).tolist() for v in (*model.variables, *variables)]


def saves(k, directory, optimizer=None):
    """Two saves and a restore into objects that have trained on, and into new ones."""
    import tfckpt

    model = _model(k, optimizer)
    model.fit(_data(), verbose=0)
    lookup = k.layers.StringLookup(vocabulary=["a", "b"])
    checkpoint = tfckpt.Checkpoint(model=model, optimizer=model.optimizer, lookup=lookup)
    checkpoint.save(f"{directory}/ckpt")
    model.fit(_data(), verbose=0)
    path, expected = checkpoint.save(f"{directory}/ckpt"), _state(model)
    model.fit(_data(), verbose=0)
    checkpoint.restore(path).assert_consumed()
    found = [_state(model)]
    other, lookup = _model(k, optimizer), k.layers.StringLookup()
    again = tfckpt.Checkpoint(model=other, optimizer=other.optimizer, lookup=lookup)
    again.restore(path)
    found += [_state(other), lookup.get_vocabulary()]
    return found, [expected, expected, ["[UNK]", "a", "b"]]


def fits(k, directory):
    """A training that is interrupted and resumed."""
    import tfckpt

    class Stop(k.callbacks.Callback):
        seen = 0

        def on_train_batch_end(self, batch, logs=None):
            self.seen += 1
            if self.seen == 5:
                raise KeyboardInterrupt

    def trained(*callbacks, resumes=True):
        k.backend.clear_session()
        model = _model(k)
        if resumes:
            callbacks += (tfckpt.callbacks.resume(model, directory, save_freq=2),)
        held = k.callbacks.EarlyStopping("loss", patience=2, start_from_epoch=0)
        history = model.fit(
            _data(9), epochs=2, verbose=0, validation_data=_data(3), callbacks=[held, *callbacks]
        )
        return _state(model), history.history["loss"], held.wait

    expected = trained(resumes=False)
    with contextlib.suppress(KeyboardInterrupt):
        trained(Stop())
    return trained(), expected


def plain(k, directory):
    """Variables, an iterator and a table, in the background, and a variable that comes later."""
    import numpy as np

    import tfckpt

    def made():
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


def comes_late(k, directory):
    """A restore that comes before its model, whose layers are made in calls or by their `build`."""
    import tfckpt

    class Net(k.Model):
        def __init__(self):
            super().__init__(name="net")
            self.body, self.head = k.layers.Dense(3, name="body"), None

        def call(self, x):
            if self.head is None:
                self.head = k.layers.Dense(1, name="head")
            return self.head(self.body(x))

    def made():
        k.backend.clear_session()
        model = Net()
        return model, tfckpt.Checkpoint(model=model, optimizer=k.optimizers.SGD(0.1, momentum=0.9))

    def step(model, checkpoint):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(tf.ones((2, 3))) ** 2)
        variables = model.trainable_variables
        gradients = tape.gradient(loss, variables)
        checkpoint.optimizer.apply_gradients(zip(gradients, variables, strict=True))

    model, checkpoint = made()
    step(model, checkpoint)
    path = checkpoint.save(f"{directory}/ckpt")
    step(model, checkpoint)
    later, checkpoint = made()
    checkpoint.restore(path)
    step(later, checkpoint)
    return [each.numpy().tolist() for each in later.trainable_variables], [
        each.numpy().tolist() for each in model.trainable_variables
    ]


def legacy(k, directory):
    return saves(k, directory, lambda: k.optimizers.legacy.Adam(0.1))


def scaled(k, directory):
    mixed = k.mixed_precision
    return saves(k, directory, lambda: mixed.LossScaleOptimizer(k.optimizers.Adam(0.1)))


SCENARIOS = {
    "saves": (saves, "keras"),
    "saves of tf_keras": (saves, "tf_keras"),
    "legacy optimizer": (legacy, "tf_keras"),
    "scaled optimizer": (scaled, "tf_keras"),
    "fits": (fits, "keras"),
    "fits of tf_keras": (fits, "tf_keras"),
    "plain": (plain, "keras"),
    "comes late": (comes_late, "keras"),
    "comes late in tf_keras": (comes_late, "tf_keras"),
}
OLDER = ("saves of tf_keras", "legacy optimizer", "scaled optimizer")
OF_MODULES = {
    "attributes": ("saves",),
    "building": ("comes late", "comes late in tf_keras"),
    "callbacks": ("fits", "fits of tf_keras"),
    "either_keras": ("saves", "fits", "saves of tf_keras"),
    "fit": ("fits", "fits of tf_keras"),
    "graph": ("saves", "saves of tf_keras"),
    "keras": ("saves", "fits"),
    "keras_code": ("fits", "fits of tf_keras"),
    "runtime": ("plain", "fits"),
    "tensorflow": ("plain", "saves"),
    "tf_data": ("plain", "fits"),
    "tf_keras": (*OLDER, "fits of tf_keras"),
}


# One run, in a child


class _Said(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def outcome(name, scenario):
    """``exact``, ``refused``, ``other values`` or ``error``, and what was said or raised.

    In a process that has imported TensorFlow and both flavours of Keras, and not tfckpt.
    """
    sys.stdout = io.StringIO()
    if name:
        sys.meta_path.insert(0, Renamed(name))
    run, keras = SCENARIOS[scenario]
    said = _Said()
    logging.getLogger("absl").addHandler(said)
    try:
        from tfckpt.errors import TfckptError

        with tempfile.TemporaryDirectory() as directory:
            found, expected = run(importlib.import_module(keras), directory)
    except BaseException as error:
        if isinstance(error, TfckptError):
            return "refused", f"{type(error).__name__}: {error}".split("\n")[0]
        last = traceback.extract_tb(error.__traceback__)[-1]
        return "error", f"{error!r} at {last.filename}:{last.lineno}"
    said.lines += [line for line in sys.stdout.getvalue().splitlines() if line.strip()]
    same = json.dumps(found) == json.dumps(expected)
    return "exact" if same else "other values", "\n".join(dict.fromkeys(said.lines))


def judged(result, known):
    """``exact``, ``said``, ``refused``, ``silent`` or ``error``; ``known``: without a new name."""
    kind, text = result
    if kind != "other values":
        return str(kind)
    return "said" if {*_lines(text)} - {*_lines(known[1])} else "silent"


def _lines(text):
    return [re.sub(r"/tmp\S*|/dev/shm\S*|\d", "", line) for line in text.splitlines()]
