"""Values that are not in the processor's own memory are copied off some bytes at a time.

In a process of its own, since the number of devices cannot be changed once there are some: a second
logical device of the CPU stands for an accelerator.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
import numpy as np
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import tfckpt
from tfckpt.live import save

save.PIECE = 1000
expected = np.arange(1003, dtype=np.float32).reshape(17, 59)
with tf.device("CPU:1"):
    tensor = tf.identity(tf.constant(expected))
    there, small = tf.Variable(expected), tf.Variable(7)
assert tensor.device.endswith("CPU:1")
value = save._value("there", tensor, False)
pieces = [piece.copy() for piece in save._pieces(value)]
assert [piece.nbytes for piece in pieces] == [1000, 1000, 1000, 1000, 12]
np.testing.assert_array_equal(np.concatenate(pieces), expected.ravel())

path = tfckpt.Checkpoint(there=there, small=small).save(sys.argv[1])
there.assign(tf.zeros_like(there))
tf.train.Checkpoint(there=there, small=small).read(path).assert_existing_objects_matched()
np.testing.assert_array_equal(there, expected)
assert int(small) == 7

there.assign(tf.zeros_like(there))
status = tfckpt.Checkpoint(there=there, small=small, more=tf.Variable(1)).read(path)
np.testing.assert_array_equal(there, expected)
assert there.device.endswith("CPU:1")
kept = {one.old.device[-5:] for one in status._undo._kept}
assert kept == {"CPU:0"}, kept
try:
    status.assert_existing_objects_matched()
except AssertionError:
    assert not there.numpy().any()
    print("done")
"""


def test_a_large_value_of_another_device_is_copied_off_in_pieces(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "run" / "ckpt")],
        check=False,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"},
    )
    assert done.stdout.endswith("done\n"), done.stderr
