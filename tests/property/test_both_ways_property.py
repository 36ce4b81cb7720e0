"""Any variables: what tfckpt saves TensorFlow restores bit by bit, and the other way round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from zoo.tensors import DTYPES, SHAPES, random_array

if TYPE_CHECKING:
    from collections.abc import Callable

SHARDS = st.integers(1, 4)
NAMES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0/"), min_size=1, max_size=8
)


@st.composite
def arrays(draw: Any) -> Any:
    dtype = draw(st.sampled_from(DTYPES))
    return random_array(draw(st.integers(0, 2**32)), dtype, draw(SHAPES))


CONTENTS = st.dictionaries(NAMES, arrays(), min_size=1, max_size=6)


@pytest.fixture(scope="session")
def both(tmp_path_factory: pytest.TempPathFactory) -> Callable[[dict[str, Any], int], None]:
    """Saves by one and restores by the other, both ways."""
    tf = pytest.importorskip("tensorflow")
    import tfckpt
    from tfckpt.live import save

    directory = tmp_path_factory.mktemp("both")

    def check(content: dict[str, Any], shards: int) -> None:
        for file in directory.glob("ckpt*"):
            file.unlink()
        for saves, restores in (
            (tfckpt.Checkpoint, tf.train.Checkpoint),
            (tf.train.Checkpoint, tfckpt.Checkpoint),
        ):
            prefix = str(directory / f"ckpt-{saves.__module__.partition('.')[0]}")
            old = {name: tf.Variable(value) for name, value in content.items()}
            new = {name: tf.Variable(np.zeros_like(value)) for name, value in content.items()}
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(save, "files_for", lambda _: shards)
                path = saves(values=old).write(prefix)
            restores(values=new).read(path).assert_existing_objects_matched()
            for name, value in content.items():
                assert np.asarray(new[name]).tobytes() == value.tobytes(), name
        assert len(list(directory.glob("ckpt-tfckpt.data-*"))) == shards

    return check


@settings(max_examples=15)
@example(content={"²": np.float32(3)}, shards=1)  # a digit to Python, and no number
@given(content=CONTENTS, shards=SHARDS)
def test_a_sample_of_checkpoints(both: Any, content: dict[str, Any], shards: int) -> None:
    both(content, shards)


@pytest.mark.long
@settings(max_examples=500)
@given(content=CONTENTS, shards=SHARDS)
def test_five_hundred_checkpoints(both: Any, content: dict[str, Any], shards: int) -> None:
    both(content, shards)
