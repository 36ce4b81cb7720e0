"""What programs in graph mode wrote with TF1's ``Saver``, and how a test restores it."""

from __future__ import annotations

import dataclasses
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

v1 = tf.compat.v1


@dataclasses.dataclass(frozen=True)
class Saved:
    """A checkpoint, and the values that its variables had, by their own names."""

    path: str
    values: dict[str, Any]


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
    devices: dict[str, int] | None = None,
    names: Callable[[Any], dict[str, Any]] | None = None,
    seed: int = 0,
) -> Saved:
    """Build a graph, give every variable numbers of its own, and save it.

    Args:
        path: of the checkpoint.
        build: makes the graph.
        version: of the format.
        sharded: whether one file per device is written.
        devices: what ``tf.compat.v1.Session`` has.
        names: the dict that the ``Saver`` is given, from all variables; else their own names.
        seed: of the numbers.
    """
    random = np.random.default_rng(seed)
    config = v1.ConfigProto(device_count=devices or {})
    with tf.Graph().as_default(), v1.Session(config=config) as session:
        build()
        variables = v1.global_variables()
        session.run(v1.global_variables_initializer())
        for variable in variables:
            variable.load(_numbers(random, variable), session)
        saver = v1.train.Saver(
            names(variables) if names else None, write_version=version, sharded=sharded
        )
        written = saver.save(session, str(path), write_meta_graph=False)
        values = {each.op.name: each.eval(session) for each in variables}
    return Saved(written, values)


def restore(tmp_path: Path, saved: Saved, policy: str, **objects: Any) -> Any:
    """The report of a restore by a policy, which is a few lines of YAML."""
    config = tmp_path / "config.yaml"
    lines = textwrap.indent(textwrap.dedent(policy).strip(), "    ")
    config.write_text(
        f'version: 1\nrestore: {{path: "{saved.path}", policy: tf1}}\npolicies:\n  tf1:\n{lines}\n'
    )
    return tfckpt.restore(config, **objects)


def assert_holds(model: Any, saved: Saved, **scopes: str) -> None:
    """Each layer holds the kernel and bias of the scope that it is given with."""
    for layer, scope in scopes.items():
        for variable, name in zip(model.get_layer(layer).weights, ("kernel", "bias"), strict=True):
            np.testing.assert_array_equal(variable.numpy(), saved.values[f"{scope}/{name}"])


def _numbers(random: Any, variable: Any) -> Any:
    kind = variable.dtype.base_dtype.as_numpy_dtype
    if np.dtype(kind).kind in "iu":
        return random.integers(1, 100, size=variable.shape).astype(kind)
    return random.uniform(0.1, 1.0, size=variable.shape.as_list()).astype(kind)
