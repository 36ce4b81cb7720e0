"""A restore holds the values once beside the model's, and a few of them with `verify: none`.

Measured in processes of their own: the high-water mark of resident memory is set back before the
restore (Documentation/filesystems/proc.rst of Linux: clear_refs) and read after it.
"""

from __future__ import annotations

import gc
import importlib
from typing import Any

import pytest
from zoo.forkserver import ForkServer
from zoo.resident import MEASURED, peak, resident, status

MIB = 1 << 20
SIDE, COUNT = 2048, 8
LARGEST = SIDE * SIDE * 4  # 16 MiB of float32
WHOLE = COUNT * LARGEST
SLACK = 32 * MIB  # names, plans, the interpreter's own growth

pytestmark = MEASURED


def build(flavour: str) -> Any:
    keras = importlib.import_module(flavour)
    layers = [keras.layers.Dense(SIDE, use_bias=False, name=f"layer_{n}") for n in range(COUNT)]
    return keras.Sequential([keras.Input((SIDE,)), *layers])


def save(path: str) -> str:
    """In a child."""
    import tfckpt

    return str(tfckpt.Checkpoint(model=build("keras")).save(path))


def restored(path: str, flavour: str, policy: Any, room: int) -> int | str:
    """In a child: the bytes that a restore took at most, or why there was no ``room`` for it."""
    import resource

    import tensorflow as tf

    import tfckpt

    model = build(flavour)
    gc.collect()
    if room:
        most = status("VmSize:") + room
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    before = resident()
    try:
        if policy is None:
            tfckpt.Checkpoint(model=model).restore(path).assert_consumed()
        else:
            tfckpt.restore(path, model=model, policy=policy)
    except tfckpt.RestoreError as error:
        return str(error)
    took = peak() - before
    stored = tf.train.load_checkpoint(path)
    shapes = stored.get_variable_to_shape_map()
    saved = [stored.get_tensor(name) for name, shape in shapes.items() if shape == [SIDE, SIDE]]
    assert {each.tobytes() for each in saved} == {each.tobytes() for each in model.get_weights()}
    return took


@pytest.fixture(scope="module")
def path(server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A checkpoint of 128 MiB in 8 values."""
    place = tmp_path_factory.mktemp("run") / "ckpt"
    found: str = server.run((__file__, "save"), str(place)).result()
    return found


@pytest.mark.parametrize(
    ("flavour", "policy", "most"),
    [
        ("keras", None, WHOLE),
        ("tf_keras", {"verify": "values"}, WHOLE),
        ("keras", {"verify": "none"}, 4 * LARGEST),
    ],
)
def test_a_restore_holds_no_more_than(server, path, flavour, policy, most) -> None:
    took = server.run((__file__, "restored"), path, flavour, policy, 0).result()
    assert took < most + SLACK


def test_where_there_is_no_memory_the_error_names_the_way_out(server, path) -> None:
    error = server.run((__file__, "restored"), path, "keras", {}, WHOLE // 2).result()
    assert "not enough memory for the new values" in error
    assert "`verify: none` in a policy" in error
