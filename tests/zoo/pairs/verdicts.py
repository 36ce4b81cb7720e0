"""What a restore made of a pair of models: right, refused, said, or wrong without a word."""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
import warnings
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.pairs.build import Built, start_anew
from zoo.pairs.describe import intended, leaves, program, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from zoo.pairs.cases import Case

    Values = dict[tuple[int, int], Any]

RIGHT, SUSPECT, REFUSED, SAID, PART = "right", "suspect", "refused", "said", "part"
MISPLACED, LEFT, HALF, CRASHED = "misplaced", "left random", "half restored", "crashed"
FALSE = "refused what is the same"
WRONG = (MISPLACED, LEFT, HALF, CRASHED, FALSE)

# Who asks for a part is not told what is left out of it.
_ASKS_FOR_PART = ("expect_partial", "policy expect_partial")
# Who says that names or positions are to be believed is believed.
_TRUSTS = ("match: name", "match: structure")


@dataclass(frozen=True)
class Verdict:
    """Of one way to restore.

    Attributes:
        route: which way.
        word: what became of it.
        why: what was wrong, or what was said.
    """

    route: str
    word: str
    why: str = ""

    @property
    def wrong(self) -> bool:
        return self.word in WRONG

    @property
    def refused(self) -> bool:
        return self.word in (SUSPECT, REFUSED, HALF, CRASHED)


# The drop-in class; each assertion is made of what the one before let pass.
_STATUS = ("restore", "expect_partial", "assert_existing_objects_matched", "assert_consumed")
_POLICIES: dict[str, dict[str, Any]] = {
    "policy strict": {},
    "policy expect_partial": {"expect_partial": True},
    "match: name": {"match": "name"},
    "match: structure": {"match": "structure"},
}


def judge(case: Case, keras: Any) -> list[Verdict]:
    """One verdict for each way to restore."""
    start_anew(keras)
    first = Built(keras, case.first, tokens=case.tokens, seed=1)
    place = tempfile.mkdtemp(prefix="pairs")
    try:
        path = _save(first, case.writer, f"{place}/ckpt")
        if case.anew:
            start_anew(keras)
        second = Built(keras, case.second, tokens=case.tokens, seed=2)
        judging = _Judging(case, first, second, path)
        found = [*judging.by_status(path), *judging.by_policies(path)]
        same = program(case.first) == program(case.second)
        if same and case.writer == "tfckpt" and leaves(case.first):
            found = [replace(each, word=FALSE) if each.refused else each for each in found]
        return found
    finally:
        shutil.rmtree(place)


def _save(built: Built, writer: str, prefix: str) -> str:
    import tensorflow as tf

    import tfckpt

    if writer == "h5":
        built.model.save_weights(f"{prefix}.weights.h5")
        return f"{prefix}.weights.h5"
    library: Any = tf.train if writer == "tensorflow" else tfckpt
    return str(library.Checkpoint(model=built.model).save(prefix))


def _held(path: str, writer: str) -> set[bytes] | None:
    """The values in the file: TensorFlow leaves out what Keras 3 keeps in a list or dict."""
    import tensorflow as tf

    if writer != "tensorflow":
        return None  # all of them
    reader = tf.train.load_checkpoint(path)
    tensors = map(reader.get_tensor, reader.get_variable_to_shape_map())
    return {each.tobytes() for each in tensors if isinstance(each, np.ndarray)}


def _unknown(case: Case, path: str) -> set[str] | None:
    """The given names that the file does not have; None for all."""
    import h5py
    import tensorflow as tf
    from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

    if (case.flavour, case.writer) == ("tf_keras", "h5"):
        return None  # its groups are numbered by class
    if case.writer == "tfckpt":
        return set()
    words: set[str] = set()
    if case.writer == "h5":
        with h5py.File(path) as file:
            file.visititems(lambda name, group: words.update(name.split("/"), _texts(group)))
    else:
        graph = TrackableObjectGraph()
        graph.ParseFromString(
            tf.train.load_checkpoint(path).get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH")
        )
        for node in graph.nodes:
            words.update(w for value in node.attributes for w in value.full_name.split("/"))
    # Keras 3 builds the layers inside of a layer in its scope, without their names.
    return {each.name for each in walk(case.first) if each.name} - words


def _texts(group: Any) -> list[str]:
    """Where the names of layers are in newer files."""
    return [value for value in group.attrs.values() if isinstance(value, str)]


class _Judging:
    def __init__(self, case: Case, first: Built, second: Built, path: str) -> None:
        self._second = second
        held = _held(path, case.writer)
        stored, self._fresh = first.values(), second.values()
        self._stored = {k: v for k, v in stored.items() if held is None or v.tobytes() in held}
        self._whose = {value.tobytes(): key for key, value in self._stored.items()}
        unknown = _unknown(case, path)
        self._meant = self._meant_for(intended(case.first, case.second, unknown, anew=case.anew))
        self._exempt = retyped(case)

    def _meant_for(self, layers: dict[int, int]) -> Values:
        """What each variable of the second model is to be, if it comes from the first."""
        meant = {}
        for (uid, at), fresh in self._fresh.items():
            if (old := self._stored.get((layers.get(uid, -1), at))) is not None:
                assert old.shape == fresh.shape
                meant[uid, at] = old
        return meant

    def by_status(self, path: str) -> list[Verdict]:
        import tfckpt

        model = self._second.model
        self._second.assign(self._fresh)
        status: Any = None

        def restore() -> None:
            nonlocal status
            status = tfckpt.Checkpoint(model=model).restore(path)

        found = [self._verdict("restore", restore)]
        for method in _STATUS[1:]:
            if found[-1].refused:
                found.append(replace(found[-1], route=method))
                continue
            if found[-1].word == MISPLACED:  # the values were tried out since
                self._second.assign(self._fresh)
                restore()
            found.append(self._verdict(method, getattr(status, method)))
        return found

    def by_policies(self, path: str) -> list[Verdict]:
        import tfckpt

        found = []
        for route, policy in _POLICIES.items():
            self._second.assign(self._fresh)
            config = {"version": 1, "restore": {"path": path, "policy": policy}}
            restore = partial(tfckpt.restore, config, model=self._second.model)
            found.append(self._verdict(route, restore))
        return found

    def _verdict(self, route: str, restore: Callable[[], object]) -> Verdict:
        from tfckpt import NotBuiltError, TfckptError

        with listening() as said:
            try:
                restore()
            except NotBuiltError as error:
                return Verdict(route, CRASHED, str(error))
            except TfckptError as error:
                if not _equal(self._second.values(), self._fresh):
                    return Verdict(route, HALF, str(error))
                return Verdict(route, SUSPECT if "SUSPECT" in str(error) else REFUSED, str(error))
            except Exception as error:
                return Verdict(route, CRASHED, f"{type(error).__name__}: {error}")
        return self._of_values(route, "\n".join(said))

    def _of_values(self, route: str, said: str) -> Verdict:
        found = self._second.values()
        misplaced, left = [], []
        for key, value in found.items():
            meant = self._meant.get(key)
            if meant is not None and _same(value, meant):
                continue
            if not _same(value, self._fresh[key]):
                if key[0] not in self._exempt and route not in _TRUSTS:
                    misplaced.append(f"{key} has {self._whose.get(value.tobytes())}")
            elif meant is not None:
                left.append(str(key))
        if misplaced and not self._makes_no_difference():
            return Verdict(route, MISPLACED, ", ".join(misplaced))
        if not left:
            return Verdict(route, RIGHT)
        if said:
            return Verdict(route, SAID, said)
        word = PART if route in _ASKS_FOR_PART else LEFT
        return Verdict(route, word, ", ".join(left))

    def _makes_no_difference(self) -> bool:
        """Whether the model does the same as with each value where it is meant to be.

        Two branches that are added up may be told apart by nothing, and need not be.
        """
        found = self._second.values()
        if any(_same(found[key], self._fresh[key]) for key in self._meant):
            return False
        outputs = self._second.outputs()
        self._second.assign({**found, **self._meant})
        wanted = self._second.outputs()
        return all(np.allclose(a, b, atol=1e-5) for a, b in zip(outputs, wanted, strict=True))


def retyped(case: Case) -> set[int]:
    """Layers of another class under a name that a layer had: it is open whose values they take."""
    old = {each.uid for each in leaves(case.first)}
    names = {each.name for each in walk(case.first) if each.name}
    return {
        each.uid
        for each in leaves(case.second)
        if each.uid not in old and (each.name in names or each.attribute)
    }


def _same(one: Any, other: Any) -> bool:
    return bool(one.shape == other.shape and one.tobytes() == other.tobytes())


def _equal(one: Values, other: Values) -> bool:
    return all(_same(value, other[key]) for key, value in one.items())


@contextlib.contextmanager
def listening() -> Iterator[list[str]]:
    """What is said meanwhile, by a warning or in a log."""
    said: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    ear = Ear(logging.WARNING)
    logger = logging.getLogger("absl")
    logger.addHandler(ear)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield said
        said += [str(each.message) for each in caught]
    finally:
        logger.removeHandler(ear)
