"""Calls models on a small batch, and notes what they and their layers compute.

A call leaves nothing behind: variables, random generators and the attributes of layers are put
back, and so are the methods that note the outputs. It runs on the CPU, in eager mode, with
``training=False``; what a layer has compiled is called as it was written.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfckpt.core.inventory import Role
from tfckpt.core.text import one_line
from tfckpt.errors import RestoreError, SaveError, TfckptError
from tfckpt.live import generators as random_generators
from tfckpt.live.apply import Undo
from tfckpt.live.inventory import collect_as
from tfckpt.live.private.either_keras import CALLS, attributes_of, inputs_of_model
from tfckpt.live.private.tensorflow import Trackable
from tfckpt.live.turns import live_objects
from tfckpt.live.variables import array_of, is_variable
from tfckpt.planning.proof import (
    MOST_BATCH,
    FunctionProof,
    PartOutput,
    Sketch,
    compared,
    decoded,
    encoded,
    fed_by,
    packed_batch,
    sketch_of,
    tolerance_of,
    unpacked_batch,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tfckpt.live.inventory import Live
    from tfckpt.live.workers import Together
    from tfckpt.planning import Plan
    from tfckpt.stored.commits.record_file import CommitRecord

AUTO = "auto"
_OUTPUTS = 8  # of one part, over all its calls, as of the cell of a recurrent layer
_SMALL = 1024  # numbers of an example of which several are made
_CHANGED = {Role.WEIGHT, Role.STATE, Role.SEED, Role.METRIC}
_A_LINE = 'a save that records it: save(…, probe="auto"), or `manager: {probe: auto}` in a config'


def recorded(live: Live, probe: Any, workers: object = None) -> dict[str, Any]:
    """What the record of a save holds of its models' function."""
    try:
        if workers is not None:
            raise TfckptError("several workers save together, and a probe is for one process")
        found = {}
        for name, batch in _batches(live, probe).items():
            packed = _spec(live, name) if batch is AUTO else packed_batch(batch)
            if (nbytes := len(repr(packed))) > MOST_BATCH:
                hint = 'pass fewer examples, or probe="auto", of which the record holds the spec'
                message = f"a batch of {nbytes:,} bytes, and a record holds {MOST_BATCH:,}"
                raise TfckptError(message, hint=hint)
            found[name] = packed, called(live, name, unpacked_batch(packed))
        return encoded(found)
    except TfckptError as error:
        raise SaveError(f"probe: {error}", hint="nothing was written") from error


def proven(
    record: CommitRecord | None,
    path: str,
    live: Live,
    dtypes: Iterable[str] = (),
    renamed: Mapping[str, str] | None = None,
) -> FunctionProof:
    """Whether models compute what the record of a checkpoint says.

    ``dtypes`` are those that values had on their way into the models, ``renamed`` the layers that
    have another name than in the checkpoint.
    """
    if record is None or record.proof is None:
        raise no_proof(path)
    saved, before, after = decoded(record.proof, path), {}, {}
    entries = live.inventory.entries.values()
    known = {*dtypes, *(each.dtype for each in entries if each.role is Role.WEIGHT)}
    for name, (packed, outputs) in saved.items():
        component = next(iter(live.models)) if len(saved) == len(live.models) == 1 else name
        if component not in live.models:
            given = ", ".join(live.models) or "no model"
            raise TfckptError(f"{path}: it has what {name!r} computes, and {given} was given")
        batch = unpacked_batch(packed, path)
        before[name] = [o._replace(part=(renamed or {}).get(o.part, o.part)) for o in outputs]
        after[name] = called(live, component, batch, before[name])
        known |= {each.output.dtype for each in (*outputs, *after[name])}
    tolerance = tolerance_of(known)
    result = compared(path, before, after, tolerance)
    if not result.same:  # a model that draws numbers differs from itself
        again = {name: _again(live, saved, name, outputs) for name, outputs in before.items()}
        if not (itself := compared(path, after, again, tolerance)).same:
            message = f"{itself.part} computes something else at each call, as if by chance"
            raise TfckptError(f"{path}: {message}: there is nothing to compare")
    return result


def _again(
    live: Live, saved: Mapping[str, Any], name: str, outputs: list[PartOutput]
) -> list[PartOutput]:
    component = name if name in live.models else next(iter(live.models))
    return called(live, component, unpacked_batch(saved[name][0]), outputs)


def no_proof(path: str) -> TfckptError:
    """The error where a checkpoint has no outputs to compare."""
    return RestoreError(f"{path}: its save has not recorded what the model computes", hint=_A_LINE)


class Prover:
    """Compares the models of a restore with the record of its checkpoint.

    It does not keep the models alive.
    """

    def __init__(self, live: Live, record: CommitRecord | None, plan: Plan) -> None:
        self._models = {name: weakref.ref(model) for name, model in live.models.items()}
        self._record, self._plan = record, plan

    def __getstate__(self) -> dict[str, Any]:
        models = dict.fromkeys(self._models, type(None))  # a pickled report has none
        return {"_models": models, "_record": None, "_plan": self._plan}

    def __call__(self) -> FunctionProof:
        path = self._plan.source
        models = {name: model() for name, model in self._models.items()}
        if gone := [name for name, model in models.items() if model is None]:
            raise TfckptError(f"{path}: {gone[0]}, which was restored, is gone")
        weights = (step for step in self._plan.assignments if step.entry.role is Role.WEIGHT)
        dtypes = {step.stored.dtype for step in weights if step.stored is not None}
        renamed = {
            step.source.rpartition("/")[0]: step.name.rpartition("/")[0]
            for step in self._plan.assignments
            if step.stored is not None and step.stored.role is Role.WEIGHT
        }
        return proven(self._record, path, collect_as(models), dtypes, renamed)


def check_provable(record: CommitRecord | None, plan: Plan, workers: Together) -> None:
    """Raise where ``verify: function`` cannot be decided, before anything is assigned."""
    if workers.workers is not None:
        hint = "use `verify: values` here, and `tfckpt prove` in one process"
        raise RestoreError("verify: function is for a single process", hint=hint)
    if record is None or record.proof is None:
        raise no_proof(plan.source)
    weights = (one for one in plan.assignments if one.entry.role is Role.WEIGHT and one.stored)
    if any(one.stored is not None and one.stored.role is Role.SLOT for one in weights):
        message = "verify: function is about the weights that were saved, and `ema` restores their"
        raise RestoreError(f"{message} averages", hint="use `verify: values`")


def check_function(prover: Prover, undo: Undo) -> None:
    """Raise if a restored model does not compute what the saved one did, and put it back."""
    try:
        proof = prover()
        if not proof.same:
            raise RestoreError(f"{proof.path}: verify: function: {proof}")
    except BaseException as error:
        undo.roll_back()
        if not isinstance(error, TfckptError):
            raise
        state = "every variable has its old value again"
        raise RestoreError(
            f"{error}",
            hint=state if undo.complete else "not every variable could be put back: restore again",
        ) from error


def _batches(live: Live, probe: Any) -> dict[str, Any]:
    """The batch of each model, or ``AUTO``."""
    if not live.models:
        raise TfckptError("there is no Keras model among the objects")
    if isinstance(probe, str):
        if probe != AUTO:
            raise TfckptError(f'expected a batch or "auto", found {probe!r}')
        return dict.fromkeys(live.models, AUTO)
    if len(live.models) == 1:
        return {next(iter(live.models)): tf.nest.map_structure(_array, probe)}
    names = ", ".join(live.models)
    if not isinstance(probe, dict) or not probe or not probe.keys() <= live.models.keys():
        raise TfckptError(f"there are several models: pass a dict with a batch for each: {names}")
    return {name: tf.nest.map_structure(_array, batch) for name, batch in probe.items()}


def _array(value: Any) -> np.ndarray:
    array = array_of(value)
    # Python's numbers have no dtype that was chosen.
    wide = array.dtype == np.float64 and not hasattr(value, "dtype")
    return array.astype(np.float32) if wide else array


# The batch that is made


def _spec(live: Live, name: str) -> dict[str, Any]:
    """The inputs of a model, as a record holds a batch that is made from them."""
    model = live.models[name]
    inputs = inputs_of_model(model)
    if inputs is None and callable(getattr(model, "save_spec", None)):  # tf_keras
        arguments = model.save_spec()
        inputs = arguments[0][0] if arguments and len(arguments[0]) == 1 else None
    if inputs is None and hasattr(model, "get_build_config"):
        inputs = _of_shapes((model.get_build_config() or {}).get("input_shape"))
    if inputs is None:
        raise TfckptError(f"{name} does not say what it is called with: pass a batch")
    sizes = [
        layer.input_dim
        for path, layer in live.layers.items()
        if f"{path}/".startswith(f"{name}/") and isinstance(getattr(layer, "input_dim", None), int)
    ]
    below, count = min(sizes, default=2), iter(range(1 << 16))

    def drawn(spec: Any) -> dict[str, Any]:
        if isinstance(spec, dict):
            return {"dict": {str(key): drawn(each) for key, each in spec.items()}}
        if isinstance(spec, list | tuple):
            return {"list": list(map(drawn, spec))}
        dtype = tf.as_dtype(spec.dtype).name
        odd = isinstance(spec, (tf.RaggedTensorSpec, tf.SparseTensorSpec))
        if dtype == "string" or odd or getattr(spec, "sparse", False) or spec.shape is None:
            raise TfckptError(f"{name} is called with more than numbers: pass a batch")
        first, *sides = (None if side is None else int(side) for side in spec.shape)
        example = [8 if side is None else side for side in sides]
        many = 8 if np.prod(example) <= _SMALL else 1
        shape = [many if first is None else first, *example]
        return {"drawn": [dtype, shape, below, next(count)]}

    return drawn(inputs)


def _of_shapes(shape: Any) -> Any:
    """Keras 3's shapes of what a model of one's own was built with: of floats, so it says."""
    if isinstance(shape, dict):
        return {key: _of_shapes(each) for key, each in shape.items()}
    if not shape or isinstance(shape[0], (list, tuple)):
        return [_of_shapes(each) for each in shape] if shape else None
    return tf.TensorSpec([None, *shape[1:]], "float32")


# The call


def called(live: Live, name: str, batch: Any, saved: Iterable[PartOutput] = ()) -> list[PartOutput]:
    """What a model and its layers compute, in the order in which they have.

    ``saved`` is what it is to be compared with.
    """
    model = live.models[name]
    if not tf.executing_eagerly():
        raise TfckptError("a model is called in eager mode only")
    if not model.built:
        raise TfckptError(f"{name} is not built: call it once on a batch before")
    found: list[PartOutput] = []
    with live_objects(), _untouched(live, name), _untraced(), tf.device("CPU:0"):
        _note_all(live, found, {(o.part, o.number): o.output.bound for o in saved})
        takes = "training" in inspect.signature(model.call).parameters
        try:
            tensors = tf.nest.map_structure(tf.constant, batch)
            model(tensors, **({"training": False} if takes else {}))
        except _BuiltError:
            raise
        except Exception as error:
            reason = one_line(str(error))[:300]
            raise TfckptError(
                f"{name} cannot be called on this batch: {type(error).__name__}: {reason}",
                hint="pass a batch that `model(batch, training=False)` takes, as `probe=`",
            ) from error
    return found


@contextlib.contextmanager
def _untraced() -> Iterator[None]:
    """Functions run as they are written: a trace of this call would be used by later ones."""
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


class _BuiltError(TfckptError):
    """A call would build a layer."""


@contextlib.contextmanager
def _untouched(live: Live, name: str) -> Iterator[None]:
    """Put back whatever the body changes in a model and in the generators of the process."""
    entries = live.inventory.entries
    variables = {
        path: variable
        for path, variable in live.variables.items()
        if entries[path].role in _CHANGED and is_variable(variable)
    }
    generators, attributes = random_generators.take(), _attributes(live)
    undo = Undo()
    # Not what is trained: another thread may train it meanwhile.
    undo.watch(v for v in variables.values() if not getattr(v, "trainable", False))
    seeds = {path: _bits(v) for path, v in variables.items() if entries[path].role is Role.SEED}
    try:
        for path, variable in variables.items():
            if entries[path].role is Role.STATE and path.partition("/")[0] in live.models:
                variable.assign(tf.zeros_like(variable))  # of the last batch
        yield
        drawn = [path for path, old in seeds.items() if _bits(variables[path]) != old]
        if drawn or random_generators.take() != generators:
            who = drawn[0] if drawn else name
            raise TfckptError(f"{who} draws random numbers when called with training=False")
    finally:
        try:
            _all_put_back(attributes)
        finally:
            undo.roll_back()
            random_generators.put(generators)


def _bits(variable: Any) -> bytes:
    return array_of(tf.convert_to_tensor(variable)).tobytes()


def _attributes(live: Live) -> list[Any]:
    """Functions that put back the attributes of layers, and the lists that these hold."""
    kept = []
    for layer in live.layers.values():
        for own in attributes_of(layer):
            held = list(_held(own, set()))
            kept.append(functools.partial(_put_back, own, dict(own), held))
    return kept


def _held(container: Any, seen: set[int]) -> Iterator[tuple[Any, Any, Any]]:
    """The lists, dicts and sets in a container, and in these, each with its class and a copy."""
    values = container.values() if isinstance(container, dict) else container
    if not any(issubclass(each, (list, dict, set, tuple)) for each in {*map(type, values)}):
        return  # such as a million numbers
    for value in values:
        kind = _kind(value)
        if (kind is not None or type(value) is tuple) and id(value) not in seen:
            seen.add(id(value))
            if kind is not None:
                yield value, kind, kind(value)
            yield from _held(value, seen)


def _all_put_back(attributes: list[Any]) -> None:
    """Put back the attributes of every layer; Ctrl-C does not end it, and is raised after it."""
    interrupted = False
    while attributes:
        try:
            attributes[-1]()
        except KeyboardInterrupt:
            interrupted = True
            continue
        attributes.pop()
    if interrupted:
        raise KeyboardInterrupt


def _kind(value: Any) -> Any:
    """The class of a list, dict or set, Keras's own included; None of anything else."""
    if isinstance(value, Trackable):  # TensorFlow's own
        return None
    return next((kind for kind in (list, OrderedDict, dict, set) if isinstance(value, kind)), None)


def _put_back(own: dict[str, Any], before: dict[str, Any], held: list[Any]) -> None:
    for key in own.keys() - before.keys():
        del own[key]
    own.update(before)
    for value, kind, content in held:
        kind.clear(value)
        (kind.extend if kind is list else kind.update)(value, content)


def _note_all(live: Live, found: list[PartOutput], bounds: Mapping[tuple[str, int], float]) -> None:
    """Have each layer note what it returns, until its attributes are put back; build none."""
    counts: dict[str, int] = {}
    known: dict[int, tuple[Any, Sketch]] = {}  # what one returns, another is called with

    def sketches(structure: Any, path: str = "", first: int = 0) -> list[Sketch]:
        made: list[Sketch] = []
        for each in tf.nest.flatten(structure, expand_composites=True):
            if isinstance(each, (tf.Tensor, np.ndarray)):
                if id(each) not in known or known[id(each)][0]() is not each:
                    bound = bounds.get((path, first + len(made)))
                    known[id(each)] = weakref.ref(each), sketch_of(array_of(each), bound)
                made.append(known[id(each)][1])
        return made

    def note(path: str, arguments: Any, outputs: Any) -> None:
        before = counts.get(path, 0)
        if before < _OUTPUTS:
            fed, made = fed_by(sketches(arguments)), sketches(outputs, path, before)
            counts[path] = before + len(made)
            found.extend(PartOutput(path, before + n, fed, each) for n, each in enumerate(made))

    for path, layer in live.layers.items():
        methods = {each: _notes(note, path, layer, each) for each in CALLS}
        if not layer.built and path in live.unbuilt:
            methods["build"] = functools.partial(_not_built, path)
        # past the tracking of attributes
        vars(layer).update((key, each) for key, each in methods.items() if each is not None)


def _notes(note: Any, path: str, layer: Any, method: str) -> Any:
    """A method of a layer that notes what it returns; None if it has none."""
    if (original := getattr(layer, method, None)) is None:
        return None
    plain = getattr(original, "python_function", original)  # of a tf.function
    thread = threading.get_ident()

    def noted(*args: Any, **kwargs: Any) -> Any:
        outputs = plain(*args, **kwargs)
        if tf.executing_eagerly() and threading.get_ident() == thread:
            note(path, (args, kwargs), outputs)
        return outputs

    functools.update_wrapper(noted, original)
    with contextlib.suppress(ValueError, TypeError):
        noted.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
    return noted


def _not_built(path: str, *_: object, **__: object) -> None:
    raise _BuiltError(f"{path} is not built: call the model once on a batch before")
