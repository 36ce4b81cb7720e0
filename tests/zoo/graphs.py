"""What programs in graph mode wrote with TF1's ``Saver``."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


@dataclasses.dataclass(frozen=True)
class Saved:
    """A checkpoint, and the values that its variables had, by their own names."""

    path: str
    values: dict[str, Any]

    def of(self, scope: str) -> list[Any]:
        """The values of a scope, without slots."""
        wanted = re.compile(rf"{scope}(/\w+)?")
        return [value for name, value in self.values.items() if wanted.fullmatch(name)]


def dense(x: Any, units: int, name: str, **options: Any) -> Any:
    """As ``tf.layers.dense``, which is not there beside Keras 3."""
    with v1.variable_scope(name):
        kernel = v1.get_variable("kernel", (x.shape[-1], units), **options)
        return tf.matmul(x, kernel) + v1.get_variable("bias", (units,))


def save(
    path: Any,
    build: Callable[[], Any],
    *,
    version: int = v1.train.SaverDef.V2,
    sharded: bool = False,
    names: Callable[[str], str] = str,
    initial: bool = False,
) -> Saved:
    """Build a graph, give every variable numbers of its own, and save it.

    Args:
        path: of the checkpoint.
        build: makes the graph.
        version: of the format.
        sharded: whether a file is written for each of two devices.
        names: what a variable is called in the file, by its own name.
        initial: whether the variables keep the values that they begin with.
    """
    random = np.random.default_rng(0)
    config = v1.ConfigProto(device_count={"CPU": 2})
    with tf.Graph().as_default(), v1.Session(config=config) as session:
        build()
        variables = v1.global_variables()
        session.run(v1.global_variables_initializer())
        for variable in () if initial else variables:
            variable.load(_numbers(random, variable), session)
        named = variables if names is str else {names(v.op.name): v for v in variables}
        saver = v1.train.Saver(named, write_version=version, sharded=sharded)
        written = saver.save(session, str(path), write_meta_graph=False)
        return Saved(written, {names(each.op.name): each.eval(session) for each in variables})


def _numbers(random: Any, variable: Any) -> Any:
    kind = variable.dtype.base_dtype.as_numpy_dtype
    if np.dtype(kind).kind in "iu":
        return random.integers(1, 100, size=variable.shape).astype(kind)
    return random.uniform(0.1, 1.0, size=variable.shape.as_list()).astype(kind)
