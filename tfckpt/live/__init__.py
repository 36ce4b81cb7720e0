"""What lives in memory: the only room that imports TensorFlow and Keras."""

from tfckpt.live.io.versions import require

require()  # before any module of the room meets what is missing
