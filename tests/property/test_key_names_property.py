"""Whatever the keys of a file are: each is one value, and a slot has the variable it names."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st

from tfckpt.core.inventory import Role
from tfckpt.stored.formats.tf1_names import name_keys

WORDS = [
    "", "dense", "dense_4", "kernel", "Adam", "Adam_1", "RMSProp_2", "m", "v", "training", "iter",
    "Adafactor", "ExponentialMovingAverage", "lstm_cell", "recurrent_kernel", "forward_a",
    "backward_a", "w_slot_vr", "w_slot_v", "w", "global_step", "beta1_power", "beta1_power_7", "~2",
    "multi_head_attention", "query", "adam_m", "learning_rate", "é", "a:0", ":0",
]  # fmt: skip
KEYS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map("/".join) | st.text(max_size=9)
SHAPES = st.sampled_from([(), (3,), (4,), (3, 4)])


class Value(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    nbytes: int = 4
    crc32c: int | None = None


@given(st.dictionaries(KEYS, SHAPES, max_size=12))
@example({"//kernel": (3,), "///": (3,), "a//kernel": (3,), "//": ()})  # was read without end
def test_every_key_is_one_value(shapes) -> None:
    values = {key: Value("float32", shape) for key, shape in shapes.items()}
    inventory = name_keys("here", values)
    assert sorted(entry.key for entry in inventory.entries.values()) == sorted(shapes)
    for name, entry in inventory.entries.items():
        assert entry.name == name
        assert (entry.shape, entry.dtype) == (shapes[entry.key], "float32")
        if entry.of:
            variable = inventory.entries[entry.of]
            assert entry.role is Role.SLOT
            assert variable.role is Role.WEIGHT
            assert set(entry.shape) <= set(variable.shape)


@given(st.dictionaries(KEYS, SHAPES, max_size=12), st.randoms())
def test_the_order_of_the_keys_says_nothing(shapes, random) -> None:
    def names(keys) -> dict[str, str]:
        inventory = name_keys("here", {key: Value("float32", shapes[key]) for key in keys})
        plain = (e for e in inventory.entries.values() if "~" not in e.name)
        return {entry.key: entry.name for entry in plain}

    keys = sorted(shapes)
    shuffled = random.sample(keys, len(keys))
    first, second = names(keys), names(shuffled)
    assert {k: first[k] for k in first.keys() & second.keys()} == {
        k: second[k] for k in first.keys() & second.keys()
    }
