"""Programs that train with ``tfckpt.callbacks.resume()``, as a person would write them.

Each is a function of a :class:`Start`, which is one start of it: it builds model and data, trains,
and tells its start what a person would look at in the end. A start without a directory is plain
Keras, and says what is expected. ``zoo/resumed`` says which programs there are, where they are
killed, and what comes of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import random
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

import tfckpt
import tfckpt.callbacks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SAMPLES, BATCH, STEPS = 14, 4, 4  # the last batch of an epoch is shorter
EPOCHS = 3
SAVE_FREQ = 2  # batches, or calls of a step with `steps_per_execution`
X = np.random.default_rng(0).normal(size=(SAMPLES, 4)).astype(np.float32)
Y = X.sum(1, keepdims=True)
ARRAYS: dict[str, Any] = {"x": X, "y": Y, "batch_size": BATCH}
VALIDATION: dict[str, Any] = {"validation_data": (X[:8], Y[:8]), "validation_batch_size": BATCH}

Place = tuple[int, int, "int | str"]  # number of the `fit`, epoch, batch or event


class Killed(BaseException):
    """Ends a start where it is to be killed."""


_KILLED: list[Killed] = []


class Start:
    """One start of a program.

    Args:
        keras: the module of Keras.
        folder: what the program has on the disk, kept from start to start.
        kill: where it ends; None for nowhere.
        saves: whether tfckpt has a part in it.

    Attributes:
        trained: of each step: the number of the `fit`, epoch, batch, loss.
    """

    def __init__(self, keras: Any, folder: Path, kill: Place | None, *, saves: bool) -> None:
        self.keras, self.folder, self.saves = keras, folder, saves
        self.directory = str(folder / "run")
        self.trained: list[Any] = []
        self._kill = kill
        self._fits = -1
        self._histories: list[Any] = []
        self._seen: dict[str, Any] = {}
        self._out = io.StringIO()
        self._said: str | None = None
        self._model, self._before = None, ""

    def run(self, program: Callable[[Start], None]) -> dict[str, Any]:
        """Run the program; what came of it, as values of JSON."""
        folder = self.folder
        folder.mkdir(parents=True, exist_ok=True)
        ended: dict[str, Any] = {"killed": False, "error": "", "changed": False}
        self._begin_process()
        with self._listening():
            try:
                program(self)
            except Killed as killed:
                # A killed process ends nothing in order: its iterators live on, in the frames.
                _KILLED.append(killed)
                ended["killed"] = True
            except Exception as error:
                kind = "refused" if isinstance(error, tfckpt.RestoreError) else "died"
                ended |= {"error": f"{kind}: {type(error).__name__}: {error}"}
                ended["changed"] = self._model is not None and self._before != self._weights()
        said = self._out.getvalue() if self._said is None else self._said
        ended |= {"said": said.replace(str(folder), "."), "trained": self.trained}
        if not ended["killed"] and not ended["error"]:
            ended["result"] = {
                "weights": self._weights(),
                "optimizer": digest(variables_of(self._model.optimizer)),
                "histories": self._histories,
                **self._seen,
            }
        return json.loads(json.dumps(ended, default=float))

    def _begin_process(self) -> None:
        keras = self.keras
        keras.backend.clear_session()
        keras.mixed_precision.set_global_policy("float32")
        if keras.__name__ == "tf_keras":
            keras.backend.experimental.enable_tf_random_generator()
        keras.utils.set_random_seed(7)

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        handler = logging.StreamHandler(self._out)
        logging.getLogger("absl").addHandler(handler)
        try:
            with contextlib.redirect_stdout(self._out):
                yield
        finally:
            logging.getLogger("absl").removeHandler(handler)

    def _weights(self) -> str:
        """Of the model and of the seeds of its layers, not of its metrics."""
        found = self._model
        metrics = {id(v) for v in getattr(found, "metrics_variables", ())}
        return digest(v for v in found.variables if id(v) not in metrics)

    # What programs call

    def network(self, *between: Any, kind: Any = None) -> Any:
        layers = self.keras.layers
        made = [self.keras.Input((4,)), layers.Dense(3, activation="tanh"), *between]
        return (kind or self.keras.Sequential)([*made, layers.Dense(1, dtype="float32")])

    def compiled(self, *between: Any, kind: Any = None, **more: Any) -> Any:
        model = self.network(*between, kind=kind)
        momentum = self.keras.optimizers.SGD(0.05, momentum=0.9)
        model.compile(**{"optimizer": momentum, "loss": "mse", **more})
        return model

    def resume(self, model: Any, **more: Any) -> list[Any]:
        """The line that a person adds."""
        self.trains(model)
        if not self.saves:
            return []
        save = {"save_freq": SAVE_FREQ, **more}
        return [tfckpt.callbacks.resume(model, self.directory, **save)]

    def fit(self, model: Any, *callbacks: Any, resume: Any = None, **given: Any) -> Any:
        """``fit`` with that line, and a callback that kills."""
        resuming = self.resume(model) if resume is None else resume
        self._fits += 1
        watch = _watch(self, self._fits)
        found = model.fit(
            **{"epochs": EPOCHS, "verbose": 0, **given}, callbacks=[*resuming, *callbacks, watch]
        )
        self._histories.append([found.epoch, sorted(found.history.items())])
        return found

    def trains(self, model: Any) -> None:
        """This is the model that it trains."""
        self._model, self._before = model, ""
        self._before = self._weights()

    def comes_to(self, place: Place) -> None:
        if place == self._kill or (
            self._kill is not None
            and place[:2] == self._kill[:2]
            and isinstance(place[2], int)
            and isinstance(self._kill[2], int)
            and place[2] >= self._kill[2]
        ):
            raise Killed

    def steps(self, place: Place, loss: Any) -> None:
        """A step has been trained."""
        if self._said is None:
            self._said = self._out.getvalue()
        self.trained.append([*place, float(loss)])

    def sees(self, name: str, value: Any) -> None:
        """What a person would look at."""
        self._seen[name] = value


def _watch(start: Start, number: int) -> Any:
    """Tells a start where its training is.

    It holds it weakly: what a test notes is no state of the program, of which tfckpt saves what a
    callback's functions can reach.
    """
    told = weakref.ref(start)

    class Watch(start.keras.callbacks.Callback):
        epoch = -1

        def get_state(self) -> dict[str, Any]:
            return {}

        def set_state(self, state: Any) -> None:
            pass

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.epoch = epoch
            told().comes_to((number, epoch, "begin"))

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            told().comes_to((number, self.epoch, batch))

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            told().steps((number, self.epoch, batch), logs["loss"])

        def on_test_begin(self, logs: Any = None) -> None:
            told().comes_to((number, self.epoch, "validation"))

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            told().comes_to((number, epoch, "end"))

    return Watch()


def variables_of(optimizer: Any) -> Any:
    found = optimizer.variables
    return found() if callable(found) else found


def digest(values: Any) -> str:
    whole = hashlib.sha256()
    for value in values:
        array = np.asarray(value)
        whole.update(f"{array.dtype}{array.shape}".encode())
        whole.update(np.ascontiguousarray(array).tobytes())
    return whole.hexdigest()[:16]


# Kinds of data


def arrays(run: Start) -> None:
    run.fit(run.compiled(metrics=["mae"]), **ARRAYS)


def sample_weights(run: Start) -> None:
    weights = np.linspace(0.5, 1.5, SAMPLES, dtype=np.float32)
    run.fit(run.compiled(weighted_metrics=["mae"]), **ARRAYS, sample_weight=weights)


def class_weights(run: Start) -> None:
    labels = (Y[:, 0] > 0).astype(np.int32)
    crossentropy = run.keras.losses.BinaryCrossentropy(from_logits=True)
    model = run.compiled(loss=crossentropy, metrics=["accuracy"])
    run.fit(model, x=X, y=labels, batch_size=BATCH, class_weight={0: 0.5, 1: 2.0})


def validated(run: Start) -> None:
    run.fit(run.compiled(), **ARRAYS, **VALIDATION)


def split(run: Start) -> None:
    x, y = np.concatenate([X, X[:6]]), np.concatenate([Y, Y[:6]])
    run.fit(run.compiled(), x=x, y=y, batch_size=BATCH, validation_split=0.3)


def samples() -> Any:
    return tf.data.Dataset.from_tensor_slices((X, Y))


def fed(make: Callable[[Start], Any], **more: Any) -> Callable[[Start], None]:
    """A program that trains on a dataset."""

    def program(run: Start) -> None:
        run.fit(run.compiled(), x=make(run), **more)

    return program


def shuffled(run: Start) -> Any:
    return samples().shuffle(SAMPLES).batch(BATCH).prefetch(2)


def repeated(run: Start) -> Any:
    return samples().shuffle(SAMPLES).repeat().batch(BATCH)


def repeated_four_times(run: Start) -> Any:
    return samples().shuffle(SAMPLES).repeat(4).batch(BATCH)


def of_unknown_size(run: Start) -> Any:
    return samples().shuffle(SAMPLES).filter(lambda x, y: y[0] > -100).batch(BATCH)


def shuffled_once(run: Start) -> Any:
    return samples().shuffle(SAMPLES, reshuffle_each_iteration=False).batch(BATCH)


def augmented(run: Start) -> Any:
    flip = run.keras.layers.RandomFlip(seed=1)

    def augment(x: Any, y: Any) -> Any:
        return tf.reshape(flip(tf.reshape(x, (-1, 2, 2, 1)), training=True), (-1, 4)), y

    return samples().shuffle(SAMPLES).batch(BATCH).map(augment).prefetch(2)


def noisy(run: Start) -> Any:
    generator = tf.random.Generator.from_seed(3)
    drawn = samples().map(lambda x, y: (x + 0.3 * generator.normal([4]), y))
    return drawn.batch(BATCH)


def drawn(run: Start) -> Any:
    found = samples().shuffle(SAMPLES).batch(BATCH)
    return found.map(lambda x, y: (x + 0.3 * tf.random.normal([4]), y))


def cached_then_shuffled(run: Start) -> Any:
    return samples().cache().shuffle(SAMPLES).batch(BATCH)


def from_generator(run: Start) -> Any:
    def batches() -> Iterator[Any]:
        for first in range(0, SAMPLES, BATCH):
            yield X[first : first + BATCH], Y[first : first + BATCH]

    spec = tf.TensorSpec((None, 4), tf.float32), tf.TensorSpec((None, 1), tf.float32)
    return tf.data.Dataset.from_generator(batches, output_signature=spec)


def sequence(run: Start) -> Any:
    utils = run.keras.utils
    base = utils.Sequence if run.keras.__name__ == "tf_keras" else utils.PyDataset

    class Shuffled(base):
        def __init__(self) -> None:
            if base.__name__ == "PyDataset":
                super().__init__()
            self.order = np.arange(SAMPLES)

        def __len__(self) -> int:
            return STEPS

        def __getitem__(self, index: int) -> Any:
            chosen = self.order[index * BATCH : (index + 1) * BATCH]
            return X[chosen], Y[chosen]

        def on_epoch_end(self) -> None:
            np.random.shuffle(self.order)

    return Shuffled()


def generator(run: Start) -> Any:
    draw = np.random.default_rng(3)
    while True:
        chosen = draw.permutation(SAMPLES)[:BATCH]
        yield X[chosen], Y[chosen]


def shuffled_validation(run: Start) -> None:
    """What is left for the validation is drawn anew at each evaluation."""
    found = samples().shuffle(SAMPLES)
    given = {"x": found.skip(4).batch(2), "validation_data": found.take(4).batch(2)}
    run.fit(run.compiled(), **given)


# 1: a cache keeps the order of the first epoch


def shuffled_then_cached(run: Start) -> Any:
    return samples().shuffle(SAMPLES).cache().batch(BATCH)


def batches_cached(run: Start) -> Any:
    return samples().shuffle(SAMPLES).batch(BATCH).cache().prefetch(2)


def cached_between_shuffles(run: Start) -> Any:
    return samples().shuffle(SAMPLES).cache().shuffle(4).batch(BATCH)


def cached_in_a_file(run: Start) -> Any:
    return samples().shuffle(SAMPLES).cache(str(run.folder / "cache")).batch(BATCH)


def images(run: Start) -> None:
    folder = run.folder / "images"
    for number, row in enumerate(X):
        path = folder / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = tf.cast(tf.reshape(tf.sigmoid(row) * 255, (2, 2, 1)), tf.uint8)
        path.write_bytes(tf.io.encode_png(pixels).numpy())
    given = {"image_size": (2, 2), "color_mode": "grayscale", "batch_size": BATCH}
    found = run.keras.utils.image_dataset_from_directory(str(folder), **given)
    run.fit(run.compiled(), x=found.map(_flat).cache())


def _flat(image: Any, label: Any) -> Any:
    return tf.reshape(image, (-1, 4)) / 255, tf.cast(label, tf.float32)


# 2: TensorFlow's operations that draw, in a step


def draws_in_a_layer(run: Start) -> None:
    class Noise(run.keras.layers.Layer):
        def call(self, inputs: Any, training: Any = None) -> Any:
            drawn = tf.random.normal(tf.shape(inputs))
            return inputs + 0.3 * drawn if training else inputs

    run.fit(run.compiled(Noise()), **ARRAYS)


def own_step(draw: Callable[[Any], Any]) -> Callable[[Start], None]:
    """A program whose model changes its batches in a ``train_step`` of its own."""

    def program(run: Start) -> None:
        class Noisy(run.keras.Sequential):
            def train_step(self, data: Any) -> Any:
                return super().train_step((draw(data[0]), data[1]))

        run.fit(run.compiled(kind=Noisy), **ARRAYS)

    return program


def adds_noise(x: Any) -> Any:
    return x + 0.3 * tf.random.normal(tf.shape(x))


def drops(x: Any) -> Any:
    return tf.nn.dropout(x, 0.3)


def mixes(x: Any) -> Any:
    return 0.7 * x + 0.3 * tf.random.shuffle(x)


def draws_by_seed(run: Start) -> None:
    """What the pages say to use in place of it."""
    if run.keras.__name__ == "tf_keras":
        state = tf.random.Generator.from_seed(3)
        noise = state.normal
    else:
        draws = run.keras.random
        state = draws.SeedGenerator(3)

        def noise(shape: Any) -> Any:
            return draws.normal(shape, seed=state)

    class Noise(run.keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.state = state

        def call(self, inputs: Any, training: Any = None) -> Any:
            return inputs + 0.3 * noise(tf.shape(inputs)) if training else inputs

    run.fit(run.compiled(Noise()), **ARRAYS)


# 3: a loop of one's own


def loop(batches: Callable[[Start, Any], Callable[[], Any]]) -> Callable[[Start], None]:
    """A program whose loop asks for a batch, and trains it."""

    def program(run: Start) -> None:
        model = run.compiled()
        model.optimizer.build(model.trainable_variables)
        run.trains(model)
        step = tf.Variable(0, dtype=tf.int64)
        next_batch = batches(run, objects := {"model": model, "step": step})
        saving = None
        if run.saves:
            where = {"directory": run.directory}
            manager = {**where, "save": {"every_steps": SAVE_FREQ}}
            config = {"version": 1, "manager": manager}
            config["restore"] = {**where, "if_none": "initialize"}
            saving = tfckpt.from_config(config, **objects)
            saving.restore()
        while int(step) < EPOCHS * STEPS:
            epoch, batch = divmod(int(step), STEPS)
            run.comes_to((0, epoch, batch))
            x, y = next_batch()
            loss = model.train_on_batch(x, y)
            step.assign_add(1)
            run.steps((0, epoch, batch), loss)
            if saving is not None:
                saving.save_if_due()
        if saving is not None:
            saving.sync()

    return program


def iterated(run: Start, objects: dict[str, Any]) -> Any:
    objects["iterator"] = iterator = iter(samples().shuffle(SAMPLES).repeat().batch(BATCH))
    return lambda: next(iterator)


def numpys_draws(run: Start, objects: dict[str, Any]) -> Any:
    def batch() -> Any:
        chosen = np.random.permutation(SAMPLES)[:BATCH]
        return X[chosen], Y[chosen]

    return batch


def generators_draws(run: Start, objects: dict[str, Any]) -> Any:
    """A generator of one's own, of TensorFlow's: NumPy's cannot be passed to a checkpoint."""
    objects["draw"] = draw = tf.random.Generator.from_seed(3)

    def batch() -> Any:
        chosen = draw.uniform([BATCH], maxval=SAMPLES, dtype=tf.int64).numpy()
        return X[chosen], Y[chosen]

    return batch


def pythons_draws(run: Start, objects: dict[str, Any]) -> Any:
    def batch() -> Any:
        chosen = random.sample(range(SAMPLES), BATCH)
        return X[chosen], Y[chosen]

    return batch


def replayed(run: Start, objects: dict[str, Any]) -> Any:
    """What an agent has seen, of which it draws: an array and its size, as variables."""
    buffer = tf.Variable(tf.zeros([5], tf.int64))
    size = tf.Variable(0, dtype=tf.int64)
    objects |= {"buffer": buffer, "size": size}

    def batch() -> Any:
        buffer.scatter_nd_update([[size % 5]], [size % SAMPLES])
        size.assign_add(1)
        seen = buffer.numpy()[: int(size)]
        chosen = [seen[random.randrange(len(seen))] for _ in range(BATCH)]
        return X[chosen], Y[chosen]

    return batch


def managed(run: Start) -> None:
    """A loop with the drop-in classes, as TensorFlow's guide writes it."""
    model = run.compiled()
    model.optimizer.build(model.trainable_variables)
    run.trains(model)
    step = tf.Variable(0, dtype=tf.int64)
    manager = None
    if run.saves:
        checkpoint = tfckpt.Checkpoint(model=model, step=step)
        manager = tfckpt.CheckpointManager(checkpoint, run.directory, max_to_keep=3)
        manager.restore_or_initialize()
    while int(step) < EPOCHS * STEPS:
        epoch, batch = divmod(int(step), STEPS)
        run.comes_to((0, epoch, batch))
        chosen = np.random.permutation(SAMPLES)[:BATCH]
        loss = model.train_on_batch(X[chosen], Y[chosen])
        step.assign_add(1)
        run.steps((0, epoch, batch), loss)
        if manager is not None and int(step) % SAVE_FREQ == 0:
            manager.save()


# 4: several `fit`, and what stands between them


def unfrozen(run: Start) -> None:
    model = run.compiled()
    for number in range(2):
        model.layers[0].trainable = number == 1
        model.compile(run.keras.optimizers.Adam(0.02), "mse", metrics=["mae"])
        run.fit(model, **ARRAYS, epochs=2)


def evaluated_between(run: Start) -> None:
    model = run.compiled()
    resuming = run.resume(model)
    run.fit(model, **ARRAYS, epochs=2, resume=resuming)
    run.sees("evaluated", model.evaluate(X, Y, batch_size=BATCH, verbose=0))
    run.fit(model, **ARRAYS, epochs=2, resume=resuming)


def labels_between(run: Start) -> None:
    """What the first `fit` has learnt labels what the second one is given."""
    model = run.compiled()
    resuming = run.resume(model)
    run.fit(model, **ARRAYS, epochs=2, resume=resuming)
    labels = model.predict(X[::-1], batch_size=BATCH, verbose=0)
    run.fit(model, x=X[::-1], y=labels, batch_size=BATCH, epochs=2, resume=resuming)


def weights_between(run: Start) -> None:
    """The second `fit` weighs the samples by the errors of the first one."""
    model = run.compiled()
    resuming = run.resume(model)
    run.fit(model, **ARRAYS, epochs=2, resume=resuming)
    errors = np.abs(model.predict(X, batch_size=BATCH, verbose=0) - Y)[:, 0]
    run.fit(model, **ARRAYS, epochs=2, sample_weight=errors, resume=resuming)


# 5: a loop of `fit`


def fits(verbose: int) -> Callable[[Start], None]:
    def program(run: Start) -> None:
        model = run.compiled()
        for _ in range(EPOCHS):
            run.fit(model, **ARRAYS, epochs=1, resume=run.resume(model, verbose=verbose))

    return program


def fits_of_one_callback(run: Start) -> None:
    model = run.compiled()
    resuming = run.resume(model)
    for _ in range(EPOCHS):
        run.fit(model, **ARRAYS, epochs=1, resume=resuming)


def fits_by_epochs(run: Start) -> None:
    model = run.compiled()
    for epoch in range(EPOCHS):
        run.fit(model, **ARRAYS, initial_epoch=epoch, epochs=epoch + 1)


# 6: what a step makes at its first call


def variable_in_a_step(run: Start) -> None:
    class Growing(run.keras.Sequential):
        scale = None

        def train_step(self, data: Any) -> Any:
            if self.scale is None:
                self.scale = tf.Variable(1.0, trainable=False)
            self.scale.assign_add(0.1)
            return super().train_step((data[0] * self.scale, data[1]))

    run.fit(run.compiled(kind=Growing), **ARRAYS)


def optimizers_in_a_step(run: Start) -> None:
    """Each part of the model has an optimizer, which nobody builds before the first step.

    It runs eagerly: as a graph, TensorFlow 2.21 does not repeat such a training by itself.
    """
    keras = run.keras

    class Parts(keras.Sequential):
        def compile(self, **optimizers: Any) -> None:
            super().compile(run_eagerly=True)
            self.first, self.last = optimizers["first"], optimizers["last"]

        def train_step(self, data: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self(data[0], training=True) - data[1]) ** 2)
            variables = self.trainable_variables
            found = list(zip(tape.gradient(loss, variables), variables, strict=True))
            self.first.apply_gradients(found[:2])
            self.last.apply_gradients(found[2:])
            return {"loss": loss}

    model = run.network(kind=Parts)
    model.compile(first=keras.optimizers.Adam(0.05), last=keras.optimizers.Adam(0.01))
    run.fit(model, **ARRAYS)
    for name in ("first", "last"):
        run.sees(name, digest(variables_of(getattr(model, name))))


# 7: a train function made anew


def frozen_from(event: str) -> Callable[[Start], None]:
    """Keras's recipe: a layer is frozen in the middle of a training."""

    def program(run: Start) -> None:
        class Freeze(run.keras.callbacks.Callback):
            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                if event == "epoch":
                    self.set(trainable=epoch < 1)

            def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
                if event == "batch":
                    self.set(trainable=batch % 2 == 0)

            def set(self, *, trainable: bool) -> None:
                layer = self.model.layers[0]
                if layer.trainable != trainable:
                    layer.trainable = trainable
                    self.model.make_train_function(force=True)

        run.fit(run.compiled(), Freeze(), **ARRAYS)

    return program


# 8: callbacks of one's own


def set_rate(model: Any, rate: float) -> None:
    rates = model.optimizer.learning_rate
    rates.assign(rate)


def counts_on_its_class(run: Start) -> None:
    class Warmup(run.keras.callbacks.Callback):
        steps = 0

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self.steps += 1
            set_rate(self.model, 0.01 * self.steps)

    run.fit(run.compiled(), Warmup(), **ARRAYS)


def counts_in_itself(run: Start) -> None:
    class Warmup(run.keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.steps = 0

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self.steps += 1
            set_rate(self.model, 0.01 * self.steps)

    run.fit(run.compiled(), Warmup(), **ARRAYS)


def counts_with_get_state(run: Start) -> None:
    class Warmup(run.keras.callbacks.Callback):
        steps = 0

        def get_state(self) -> dict[str, Any]:
            return {"steps": self.steps}

        def set_state(self, state: dict[str, Any]) -> None:
            self.steps = state["steps"]

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self.steps += 1
            set_rate(self.model, 0.01 * self.steps)

    run.fit(run.compiled(), Warmup(), **ARRAYS)


def counts_in_a_method(run: Start) -> None:
    class Warmup(run.keras.callbacks.Callback):
        steps = 0

        def count(self) -> int:
            self.steps = self.steps + 1
            return self.steps

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            set_rate(self.model, 0.01 * self.count())

    run.fit(run.compiled(), Warmup(), **ARRAYS)


def draws_in_itself(run: Start) -> None:
    class Jitter(run.keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            set_rate(self.model, np.random.uniform(0.01, 0.05))

    run.fit(run.compiled(), Jitter(), **ARRAYS)


def averages_in_arrays(run: Start) -> None:
    """Averages of the weights, as arrays of a callback, that are the model's in the end."""

    class Averaging(run.keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            self.means = [np.zeros((20, 20)), *self.model.get_weights()]

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            now = [self.means[0] + 1, *self.model.get_weights()]
            self.means = [0.9 * a + 0.1 * b for a, b in zip(self.means, now, strict=True)]

        def on_train_end(self, logs: Any = None) -> None:
            self.model.set_weights(self.means[1:])

    run.fit(run.compiled(), Averaging(), **ARRAYS)


def draws_by_its_own(run: Start) -> None:
    class Jitter(run.keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.draw, self.other = np.random.default_rng(3), random.Random(4)

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            set_rate(self.model, self.draw.uniform(0.01, 0.05) * self.other.random())

    run.fit(run.compiled(), Jitter(), **ARRAYS)


def collects_in_a_set(run: Start) -> None:
    class Seen(run.keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.seen: set[int] = set()

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self.seen.add(len(self.seen))
            set_rate(self.model, 0.01 * len(self.seen))

    run.fit(run.compiled(), Seen(), **ARRAYS)


def counts_on_the_model(run: Start) -> None:
    class Counting(run.keras.Sequential):
        steps = 0

        def train_step(self, data: Any) -> Any:
            self.steps += 1
            return super().train_step((data[0] / self.steps, data[1]))

    run.fit(run.compiled(kind=Counting, run_eagerly=True), **ARRAYS)


def noisy_sequence(run: Start) -> Any:
    made = sequence(run)

    class Noisy(type(made)):
        def __init__(self) -> None:
            super().__init__()
            self.draw = np.random.default_rng(5)

        def on_epoch_end(self) -> None:
            super().on_epoch_end()
            self.noise = self.draw.normal(size=X.shape)

        def __getitem__(self, index: int) -> Any:
            x, y = super().__getitem__(index)
            return x + getattr(self, "noise", X)[: len(x)], y

    return Noisy()


def knows_constants(run: Start) -> None:
    class Warmup(run.keras.callbacks.Callback):
        def __init__(self, steps: int, rates: list[float]) -> None:
            super().__init__()
            self.steps, self.rates = steps, rates

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            set_rate(self.model, self.rates[min(epoch, self.steps)])

    run.fit(run.compiled(), Warmup(1, [0.01, 0.05]), **ARRAYS)


def teaches(run: Start, *, passed: bool = True) -> None:
    """A teacher that averages the weights, which the loss looks at."""
    teacher = run.network()

    class MeanTeacher(run.keras.callbacks.Callback):
        def __init__(self, teacher: Any) -> None:
            super().__init__()
            self.teacher = teacher

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            weights = self.model.trainable_variables
            for mean, value in zip(self.teacher.trainable_variables, weights, strict=True):
                mean.assign(0.8 * mean + 0.2 * value)

    def loss(real: Any, guessed: Any) -> Any:
        means = teacher.trainable_variables
        norm = sum(tf.reduce_sum(tf.convert_to_tensor(mean) ** 2) for mean in means)
        return tf.reduce_mean((real - guessed) ** 2, -1) * (1 + 0.1 * norm)

    model = run.compiled(loss=loss)
    resuming = run.resume(model, teacher=teacher) if passed else None
    run.fit(model, MeanTeacher(teacher), **ARRAYS, resume=resuming)
    run.sees("teacher", digest(teacher.weights))


def teaches_unsaved(run: Start) -> None:
    teaches(run, passed=False)


def noisy_fits(run: Start) -> None:
    """The first one may be over when it starts again; the second has data of its own."""
    model = run.compiled()
    resuming = run.resume(model)
    for _ in range(2):
        run.fit(model, x=noisy(run), epochs=2, resume=resuming)


def same_data_in_two_fits(run: Start) -> None:
    model, data = run.compiled(), shuffled(run)
    resuming = run.resume(model)
    for _ in range(2):
        run.fit(model, x=data, epochs=2, resume=resuming)


def lstm(**more: Any) -> Callable[[Start], None]:
    """As tf_keras makes layers that draw, unless it is told otherwise."""

    def program(run: Start) -> None:
        if run.keras.__name__ == "tf_keras":
            run.keras.backend.experimental.disable_tf_random_generator()
        layers = run.keras.layers
        run.fit(run.compiled(layers.Reshape((3, 1)), layers.LSTM(2, **more)), **ARRAYS)

    return program


# 9: the best weights


def best_loaded(*, stopping: bool) -> Callable[[Start], None]:
    def program(run: Start) -> None:
        model = run.compiled(metrics=["mae"])
        callbacks = [stops_at_the_worst(run)] if stopping else []
        resuming = run.resume(model, load_best_when_done=True)
        run.fit(model, *callbacks, **ARRAYS, **VALIDATION, resume=resuming)

    return program


# Further parts of a training


def with_layers(run: Start) -> None:
    layers = run.keras.layers
    model = run.compiled(layers.BatchNormalization(), layers.Dropout(0.4), optimizer="adam")
    run.fit(model, **ARRAYS, **VALIDATION)


def several_steps_a_call(run: Start) -> None:
    run.fit(run.compiled(steps_per_execution=2), x=X, y=Y, batch_size=2)


def called(*makes: Callable[[Any], Any], epochs: int = EPOCHS) -> Callable[[Start], None]:
    """A program with callbacks of Keras."""

    def program(run: Start) -> None:
        callbacks = [make(run) for make in makes]
        model = run.compiled(metrics=["mae"])
        run.fit(model, *callbacks, **ARRAYS, **VALIDATION, epochs=epochs)
        for each in callbacks:
            name = type(each).__name__
            state = {key: vars(each)[key] for key in ("wait", "best") if key in vars(each)}
            run.sees(name, {key: float(value) for key, value in state.items()})

    return program


def stops_at_the_worst(run: Start) -> Any:
    return run.keras.callbacks.EarlyStopping(
        "val_mae", mode="max", patience=1, restore_best_weights=True
    )


def plateau(run: Start) -> Any:
    return run.keras.callbacks.ReduceLROnPlateau("loss", patience=1, min_delta=9.0)


def scheduler(run: Start) -> Any:
    return run.keras.callbacks.LearningRateScheduler(lambda epoch, rate: float(rate) * 0.7)


def best_file(run: Start) -> None:
    path = str(run.folder / "best.weights.h5")
    saver = run.keras.callbacks.ModelCheckpoint(
        path, "val_loss", save_best_only=True, save_weights_only=True
    )
    run.fit(run.compiled(), saver, **ARRAYS, **VALIDATION)
    best = run.network()
    best.load_weights(path)
    run.sees("best", [digest(best.weights), float(saver.best)])


def optimized(make: Callable[[Any], Any], *, policy: str = "float32") -> Callable[[Start], None]:
    """A program with another optimizer."""

    def program(run: Start) -> None:
        run.keras.mixed_precision.set_global_policy(policy)
        run.fit(run.compiled(optimizer=make(run.keras)), **ARRAYS)

    return program


def accumulating(keras: Any) -> Any:
    return keras.optimizers.Adam(0.05, gradient_accumulation_steps=3)


def averaging(keras: Any) -> Any:
    return keras.optimizers.Adam(0.05, use_ema=True, ema_momentum=0.8)


def decaying(keras: Any) -> Any:
    schedule = keras.optimizers.schedules.CosineDecay(0.05, EPOCHS * STEPS)
    return keras.optimizers.AdamW(schedule)


def scaled(keras: Any) -> Any:
    package = keras.mixed_precision if keras.__name__ == "tf_keras" else keras.optimizers
    return package.LossScaleOptimizer(
        keras.optimizers.Adam(0.05), initial_scale=8.0, dynamic_growth_steps=5
    )
