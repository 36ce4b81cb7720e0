"""More everyday restores: programs of guides, again and changed as their users change them.

The mix was chosen before any of it was measured; ``should`` is the best that can honestly come of
a restore: ``pasted`` where only the user knows the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import tensorflow as tf

import tfckpt
from zoo.everyday import guides as of
from zoo.everyday import writers as by
from zoo.everyday.guides import alone, fit, loop, several
from zoo.everyday.judge import PASTED, REFUSED, Row
from zoo.everyday.programs import Program

KERAS3, LEGACY = ("keras",), ("tf_keras",)
ASKED = {"should": PASTED}
TF, H5, WHOLE = by.TENSORFLOW, by.weights("m.weights.h5"), by.whole("m.keras")
ALL, ROOT = by.everything, by.as_root


def under(**policy: Any) -> by.Call:
    """A user who has read the pages gives a policy."""
    return partial(by.everything, policy=policy)


def partially(program: Program, path: str) -> Any:
    """As TensorFlow's users write it."""
    return tfckpt.Checkpoint(**program.objects).restore(path).expect_partial().report


def before_the_first_call(program: Program, path: str) -> Any:
    """TensorFlow's guides restore first."""
    status = tfckpt.Checkpoint(**program.objects).restore(path)
    of.first_call(program)
    return status.assert_consumed().report


GAN = several(of.dcgan, {f"{each}_optimizer": each for each in ("generator", "discriminator")})
DQN = several(of.dqn, {"optimizer": "model"})
PPO = several(of.ppo, {"actor_optimizer": "actor", "critic_optimizer": "critic"})
LSTM, NAMED = partial(of.text, rnn="LSTM"), partial(of.forecast, names=True)
MIXED = fit(of.resnet, "scaled", dtype="mixed_float16")
TEXT, RESNET, UNET, MOBILENET = map(fit, (of.text, of.resnet, of.unet, of.mobilenet))
VIT, BACKBONE, MOBILENET_ALONE = map(
    alone, (of.vit, partial(of.mobilenet, top=False), of.mobilenet)
)

# The same program again.
AGAIN: Mapping[str, Row] = {
    "autoencoder": Row(fit(of.autoencoder), fit(of.autoencoder, built=False)),
    "VAE without a call": Row(fit(of.vae)),
    "NMT": Row(of.nmt, save=TF, call=ALL),
    "NMT, before its first call": Row(
        of.nmt, partial(of.nmt, called=False), call=before_the_first_call
    ),
    "transformer, drop-in": Row(loop(of.transformer, "step"), call=by.drop_in),
    "transformer, .weights.h5": Row(alone(of.transformer), save=H5),
    "DCGAN, TensorFlow's manager": Row(GAN, save=by.by_manager(tf), call=by.of_manager),
    "DQN with a target": Row(DQN, save=TF, call=by.drop_in),
    "U-Net, .weights.h5": Row(alone(of.unet), save=H5),
    "U-Net, TensorFlow": Row(UNET, save=TF),
    "pix2pix": Row(loop(of.pix2pix, key="generator"), save=TF, call=ALL),
    "siamese, .keras": Row(fit(of.siamese), save=WHOLE),
    "forecast, .keras": Row(fit(of.forecast), fit(of.forecast, built=False), WHOLE),
    "FeedBack, TensorFlow": Row(fit(of.feedback), save=TF),
    "TextVectorization, .keras": Row(fit(of.vectorized), save=WHOLE),
    "TextVectorization, a run": Row(fit(of.vectorized), save=by.by_run, call=by.by_config),
    "TimeDistributed, .h5": Row(fit(of.video), save=by.whole("m.h5")),
    "Bidirectional, TensorFlow": Row(TEXT, save=TF),
    "Bidirectional, TF format": Row(fit(LSTM), save=by.weights("m"), flavours=LEGACY),
    "ViT, .weights.h5": Row(fit(of.vit), save=H5),
    "ViT": Row(fit(of.vit, "adamw")),
    "MobileNet": Row(fit(of.mobilenet, "sgd")),
    "MobileNet, .weights.h5": Row(MOBILENET_ALONE, save=H5),
    "mixed precision": Row(MIXED, save=TF),
    "diffusion": Row(fit(of.diffusion)),
    "structured data": Row(fit(of.structured), save=WHOLE),
    "recommender": Row(alone(of.recommender), save=ROOT),
    "actor critic": Row(loop(of.actor_critic, "episode"), save=TF, call=by.drop_in),
    "ResNet, a run": Row(RESNET, save=by.by_run, call=by.by_config),
    "ResNet, SavedModel": Row(alone(of.resnet), save=by.exported),
    "seq2seq, .h5": Row(fit(of.seq2seq), save=by.whole("m.h5")),
    "WGAN": Row(of.wgan),
    "PPO": Row(PPO, save=by.by_manager(tfckpt), call=by.of_manager),
    "an image that is trained": Row(of.style, save=TF, call=ALL),
    "tf.Module with its own Adam": Row(of.module, save=TF, call=by.drop_in, flavours=KERAS3),
}

# A part of it, for another purpose.
PARTS: Mapping[str, Row] = {
    "NMT to translate": Row(of.nmt, of.only(of.nmt, "encoder", "decoder"), TF, ALL, "optimizer"),
    "generator, expect_partial": Row(GAN, of.only(GAN, "generator"), TF, partially),
    "DQN to play": Row(DQN, of.only(DQN, "model"), call=under(include=["model/**"])),
    "U-Net to predict": Row(UNET, alone(of.unet), H5, left="optimizer"),
    "classifier to predict": Row(TEXT, alone(of.text), WHOLE, left="optimizer"),
    "encoder alone": Row(alone(of.autoencoder), alone(of.encoder_alone), **ASKED),
    "a run to predict": Row(fit(of.vit), VIT, by.by_run, left="optimizer"),
    "actor alone": Row(PPO, of.only(PPO, "actor"), call=partially),
}

# Trained in another way.
TRAINED: Mapping[str, Row] = {
    "metrics added": Row(UNET, fit(of.unet, metrics=["mae"])),
    "another rate": Row(fit(of.vae), fit(of.vae, "faster"), left="learning_rate"),
    "Adam, now SGD": Row(TEXT, fit(of.text, "sgd"), **ASKED),
    "the same, weights alone": Row(RESNET, fit(of.resnet, "sgd"), TF, under(include=["model/**"])),
    "mixed precision since": Row(RESNET, MIXED),
    "mixed precision no more": Row(MIXED, RESNET, left="scale"),
    "a step of its own": Row(fit(of.forecast, how="functional"), fit(of.forecast, how="own step")),
    "Keras's loop, now one's own": Row(TEXT, loop(of.text, "step"), H5, ALL, "step"),
    "weights before a fit": Row(alone(of.transformer), fit(of.transformer), H5, left="optimizer"),
}

# Edited.
EDITED: Mapping[str, Row] = {
    "Dropout before the head": Row(RESNET, fit(of.resnet, drop=True)),
    "augmentation in front": Row(RESNET, fit(of.resnet, augmented=True), TF),
    "dropout in the LSTM": Row(fit(LSTM), fit(partial(LSTM, dropout=0.2))),
    "Sequential, now functional": Row(fit(of.forecast), fit(of.forecast, how="functional")),
    "functional, now subclassed": Row(
        alone(of.forecast, how="functional"), alone(of.forecast, how="subclassed"), **ASKED
    ),
    "named since": Row(alone(of.forecast), alone(NAMED), **ASKED),
    "named, now functional": Row(fit(NAMED), fit(NAMED, how="functional"), WHOLE),
    "more classes": Row(alone(of.unet), alone(of.unet, classes=4), stays=("head",), **ASKED),
    "more classes, excluded": Row(
        MOBILENET,
        alone(of.mobilenet, classes=5),
        stays=("head",),
        call=under(exclude=["model/head/**"]),
    ),
    "another head, expect_partial": Row(
        alone(of.mobilenet, head="imagenet"),
        alone(of.mobilenet, head="flowers", classes=5),
        call=under(expect_partial=True),
    ),
    "another head, by TensorFlow": Row(
        alone(of.resnet, head="imagenet"),
        alone(of.resnet, head="flowers"),
        TF,
        under(exclude=["model/flowers/**"], expect_partial=True),
    ),
    "backbone into a larger model": Row(BACKBONE, MOBILENET_ALONE, H5, **ASKED),
    "one block more": Row(
        VIT,
        alone(of.vit, blocks=3),
        today=(REFUSED, "one in front of the others looks the same: it is asked"),
        **ASKED,
    ),
}

MORE: Mapping[str, Row] = {**AGAIN, **PARTS, **TRAINED, **EDITED}
