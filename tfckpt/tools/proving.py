"""``tfckpt.prove``: whether a model computes what a saved one did, however it got its values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfckpt.errors import TfckptError
from tfckpt.live.arguments import checked
from tfckpt.live.function_proof import proven
from tfckpt.live.inventory import collect
from tfckpt.tools.find_checkpoint import find, path_of

if TYPE_CHECKING:
    import os

    from tfckpt.planning.proof import FunctionProof


def prove(source: str | os.PathLike[str], model: Any = None, /, **objects: Any) -> FunctionProof:
    """Whether a model computes now what the saved one did, layer by layer; restores nothing.

    Runs the batch that ``save(…, probe=…)`` has recorded. The model may have its values from
    anywhere, such as a converted file. Its variables, generators and attributes stay as they are.

    Args:
        source: the path of a checkpoint that was saved with ``probe=``, or a directory, of which
            the newest readable one is used.
        model: the same as ``model=``.
        **objects: by keyword, as for :class:`tfckpt.Checkpoint`.

    Raises:
        CheckpointNotFoundError: there is no checkpoint.
        DamagedCheckpointError: there is one, but it cannot be read.
        TfckptError: the save has recorded no batch, a model cannot be called on it, or what it
            computes is left to chance.

    >>> import keras, tempfile, tfckpt
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="out")])
    >>> directory = tempfile.mkdtemp()
    >>> path = tfckpt.Checkpoint(model=model).save(directory + "/ckpt", probe="auto")
    >>> model.save_weights(directory + "/it.weights.h5")
    >>> other = keras.models.clone_model(model)
    >>> other.load_weights(directory + "/it.weights.h5")
    >>> print(tfckpt.prove(path, other))
    same function: 2 outputs, bit for bit
    """
    given = objects if model is None else {"model": model, **objects}
    if not given:
        raise TfckptError("no model was given", hint="write prove(path, model)")
    checked(given)
    with find(path_of(source)).checkpoint as stored:
        return proven(stored.record, stored.prefix, collect(given))
