"""What ``tfckpt.CheckpointManager`` keeps is what TensorFlow's keeps, restarts included."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from unittest import mock

import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import tfckpt

# From one minute: what TensorFlow saved at the very time of one that it keeps for good stays, too.
GAPS = st.integers(1, 300).map(lambda minutes: 60.0 * minutes)
SAVES = st.lists(st.tuples(GAPS, st.booleans()), min_size=1, max_size=12)


def on_disk(directory: str) -> set[str]:
    return {path.stem for path in Path(directory).glob("*.index")}


@given(SAVES, st.integers(1, 3), st.none() | st.sampled_from([0.25, 1, 2.5]))
@settings(max_examples=20)
def test_what_is_kept_is_what_tensorflow_keeps(saves, max_to_keep, hours) -> None:
    value = tf.Variable(0)
    ours_by, theirs_by = tfckpt.Checkpoint(value=value), tf.train.Checkpoint(value=value)
    now = 1_700_000_000.0
    with (
        tempfile.TemporaryDirectory() as ours_in,
        tempfile.TemporaryDirectory() as theirs_in,
        mock.patch.object(time, "time", lambda: now),  # noqa: PT008 (it moves on)
    ):
        rules = max_to_keep, hours
        ours = tfckpt.CheckpointManager(ours_by, ours_in, *rules)
        theirs = tf.train.CheckpointManager(theirs_by, theirs_in, *rules)
        for gap, restart in saves:
            now += gap
            if restart:
                ours = tfckpt.CheckpointManager(ours_by, ours_in, *rules)
                theirs = tf.train.CheckpointManager(theirs_by, theirs_in, *rules)
            ours.save()
            theirs.save()
            assert on_disk(ours_in) == on_disk(theirs_in)
            assert tf.train.latest_checkpoint(ours_in) == ours.latest_checkpoint
