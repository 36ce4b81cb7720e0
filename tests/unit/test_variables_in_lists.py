"""Variables and modules in a list: one is taken out, and the next ones take its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

WRITERS = [tf.train.Checkpoint, tfckpt.Checkpoint]


class Scale(tf.Module):  # type: ignore[misc]
    def __init__(self, value: float) -> None:
        super().__init__()
        self.factor = tf.Variable([value, value])


def variables(names: Sequence[str], start: float = 0.0) -> list[Any]:
    """Variables of one shape; those of a saved list begin with 1, 2, 3."""
    step = 1.0 if start else 0.0
    return [
        tf.Variable([start + step * at] * 3, name=name or None) for at, name in enumerate(names)
    ]


def firsts(found: Sequence[Any]) -> list[float]:
    return [float(each.numpy()[0]) for each in found]


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize(
    ("saved", "live", "said"),
    [
        ("abc", "ac", "the list has length 2 in the model and 3 in the checkpoint"),
        ("ac", "abc", "the list has length 3 in the model and 2 in the checkpoint"),
        (["", "", ""], ["", ""], "the list has length 2 in the model and 3 in the checkpoint"),
        ("abc", "acb", "vs/1 is the variable 'c' in the model and 'b' in the checkpoint"),
        (["x/w", "y/w", "z/w"], ["x/w", "z/w"], "the list has length 2 in the model"),
    ],
)
def test_an_index_is_not_believed_where_the_list_or_the_names_differ(
    writer: Any, saved: Sequence[str], live: Sequence[str], said: str, tmp_path: Path
) -> None:
    prefix = writer(vs=variables(saved, 1.0)).save(str(tmp_path / "ckpt"))
    now = variables(live)
    with pytest.raises(tfckpt.RefusedError) as refused:
        tfckpt.Checkpoint(vs=now).restore(prefix)
    text = " ".join(str(refused.value).split())
    assert said in text
    assert "give the variables explicit names where the model is built" in text
    assert firsts(now) == [0.0] * len(now)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_list_that_grows_after_the_restore_is_refused_with_the_way_out(
    writer: Any, tmp_path: Path
) -> None:
    """Which of the three stored ones the first two are, nothing tells."""

    class Net(tf.Module):  # type: ignore[misc]
        def __init__(self, count: int) -> None:
            super().__init__()
            self.parts = [Scale(float(at)) for at in range(count)]

    prefix = writer(net=Net(3)).save(str(tmp_path / "ckpt"))
    grows = "in the model and 3 in the checkpoint; a list that grows later must be complete before"
    with pytest.raises(tfckpt.RefusedError) as refused:
        tfckpt.Checkpoint(net=Net(2)).restore(prefix)
    assert grows in " ".join(str(refused.value).split())
    with pytest.raises(tfckpt.RefusedError) as refused:
        tfckpt.Checkpoint(net=Net(4)).restore(prefix)
    assert "grows later" not in str(refused.value)
    net = Net(3)
    for part in net.parts:
        part.factor.assign([9.0, 9.0])
    tfckpt.Checkpoint(net=net).restore(prefix).assert_consumed()
    assert firsts([part.factor for part in net.parts]) == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize(
    ("saved", "live"),
    [
        ("abc", "abc"),
        ("abc", "abd"),  # one has a new name
        ("abc", ["", "", ""]),
        (["dense/w", "dense_1/w"], ["dense_1/w", "dense_2/w"]),  # which Keras counted
        (["w", "w"], ["w", "w"]),
    ],
)
def test_a_list_of_the_same_length_is_restored_by_index(
    writer: Any, saved: Sequence[str], live: Sequence[str], tmp_path: Path
) -> None:
    prefix = writer(vs=variables(saved, 1.0)).save(str(tmp_path / "ckpt"))
    now = variables(live)
    tfckpt.Checkpoint(vs=now).restore(prefix).assert_consumed()
    assert firsts(now) == [1.0, 2.0, 3.0][: len(now)]


@pytest.mark.parametrize("writer", WRITERS)
def test_what_was_put_at_the_end_leaves_the_named_ones_where_they_are(
    writer: Any, tmp_path: Path
) -> None:
    prefix = writer(vs=variables("ab", 1.0)).save(str(tmp_path / "ckpt"))
    now = variables("abc")
    tfckpt.Checkpoint(vs=now).restore(prefix).expect_partial()
    assert firsts(now) == [1.0, 2.0, 0.0]


@pytest.mark.parametrize("writer", WRITERS)
def test_modules_in_a_list(writer: Any, tmp_path: Path) -> None:
    saved = [Scale(1.0), Scale(2.0), Scale(3.0)]
    prefix = writer(parts=saved).save(str(tmp_path / "ckpt"))
    same = [Scale(0.0) for _ in saved]
    tfckpt.Checkpoint(parts=same).restore(prefix).assert_consumed()
    np.testing.assert_array_equal([s.factor for s in same], [s.factor for s in saved])
    fewer = [Scale(0.0), Scale(0.0)]
    with pytest.raises(tfckpt.RefusedError, match="identified by its index in a list"):
        tfckpt.Checkpoint(parts=fewer).restore(prefix)
    assert firsts([each.factor for each in fewer]) == [0.0, 0.0]


def test_a_rename_says_which_is_which(tmp_path: Path) -> None:
    prefix = tf.train.Checkpoint(vs=variables(["", "", ""], 1.0)).save(str(tmp_path / "ckpt"))
    now = variables(["", ""])
    rename = [
        {"checkpoint": "vs/0", "model": "vs/0"},
        {"checkpoint": "vs/2", "model": "vs/1"},
    ]
    tfckpt.restore(prefix, vs=now, policy={"rename": rename, "exclude_checkpoint": ["vs/1"]})
    assert firsts(now) == [1.0, 3.0]
