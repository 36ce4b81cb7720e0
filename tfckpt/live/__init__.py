"""Live objects: models, optimizers, variables; the only room that imports TensorFlow."""

from tfckpt.core.versions import require

require()  # before any module of the room meets what is missing
