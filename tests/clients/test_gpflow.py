"""GPflow: a sparse Gaussian process, whose parameters are transformed variables of `tf.Module`s."""

from __future__ import annotations

import numpy as np
import pytest

gpflow = pytest.importorskip("gpflow", reason="gpflow is not installed")

import tensorflow as tf
import tf_keras
from clients.exchange import Program, exchanged, resumed, trained

import tfckpt

pytestmark = pytest.mark.long


def build(seed: int) -> Program:
    draw = np.random.default_rng(0)
    x = draw.uniform(size=(20, 1))
    data = (x, np.sin(6 * x) + 0.1 * draw.normal(size=x.shape))
    model = gpflow.models.SVGP(
        gpflow.kernels.Matern52(lengthscales=0.1 * seed) + gpflow.kernels.White(0.1),
        gpflow.likelihoods.Gaussian(0.5 / seed),
        inducing_variable=draw.uniform(size=(5, 1)) / seed,
    )
    optimizer = tf_keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)
    loss = model.training_loss_closure(data, compile=False)
    return Program(
        {"model": model, "optimizer": optimizer},
        lambda: [*model.variables, *optimizer.variables],
        train=lambda: optimizer.minimize(loss, model.trainable_variables),
        output=lambda: model.predict_f(x)[0],
    )


def train(directory: str, stop: int | None) -> list[str]:
    return trained(build(1), directory, stop)


def test_another_sum_of_kernels_is_refused(tmp_path, outcome) -> None:
    outcome("refused: the list has another length")
    old = build(1).objects["model"]
    path = tf.train.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    new = build(2).objects["model"]
    new.kernel = gpflow.kernels.White() + gpflow.kernels.Matern52() + gpflow.kernels.RBF()
    before = [variable.numpy() for variable in new.variables]
    with pytest.raises(tfckpt.RefusedError, match="the list has length 3 in the model and 2"):
        tfckpt.Checkpoint(model=new).restore(path)
    for variable, value in zip(new.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


test_a_model_is_exchanged_with_tensorflow = exchanged(build)
test_a_killed_loop_goes_on_exactly = resumed(__file__)
