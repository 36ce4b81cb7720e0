"""All optimizers by name, and the flavours that have each."""

from __future__ import annotations

import tensorflow as tf

from zoo.variables import inner


def _by_name(k):
    head, rest = k.optimizers.SGD(0.1, momentum=0.9), k.optimizers.Adam()
    return k.optimizers.MultiOptimizer(lambda variable: head if "head" in variable.path else rest)


def _scaled(k, inner):
    module = k.optimizers if hasattr(k.optimizers, "LossScaleOptimizer") else k.mixed_precision
    return module.LossScaleOptimizer(inner)


def _schedule(k):
    return k.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)


BOTH_FLAVOURS = {
    "sgd": lambda k: k.optimizers.SGD(),
    "sgd_momentum": lambda k: k.optimizers.SGD(momentum=0.9),
    "sgd_nesterov": lambda k: k.optimizers.SGD(momentum=0.9, nesterov=True),
    "adam": lambda k: k.optimizers.Adam(),
    "adam_amsgrad": lambda k: k.optimizers.Adam(amsgrad=True),
    "adam_schedule": lambda k: k.optimizers.Adam(_schedule(k)),
    "adam_ema": lambda k: k.optimizers.Adam(use_ema=True),
    "adamw": lambda k: k.optimizers.AdamW(),
    "adamax": lambda k: k.optimizers.Adamax(),
    "nadam": lambda k: k.optimizers.Nadam(),
    "adagrad": lambda k: k.optimizers.Adagrad(),
    "adadelta": lambda k: k.optimizers.Adadelta(),
    "adafactor": lambda k: k.optimizers.Adafactor(),
    "rmsprop": lambda k: k.optimizers.RMSprop(),
    "rmsprop_centered": lambda k: k.optimizers.RMSprop(momentum=0.9, centered=True),
    "ftrl": lambda k: k.optimizers.Ftrl(),
    "lion": lambda k: k.optimizers.Lion(),
    "scaled_adam": lambda k: _scaled(k, k.optimizers.Adam()),
}
ONLY_KERAS_3 = {
    "lamb": lambda k: k.optimizers.Lamb(),
    "muon": lambda k: k.optimizers.Muon(),
    "schedule_free_adamw": lambda k: k.optimizers.ScheduleFreeAdamW(),
    "adam_accumulating": lambda k: k.optimizers.Adam(gradient_accumulation_steps=2),
    "sgd_everything": lambda k: k.optimizers.SGD(
        momentum=0.9, use_ema=True, gradient_accumulation_steps=2
    ),
    "multi": _by_name,
}
ONLY_LEGACY = {
    "legacy_sgd": lambda k: k.optimizers.legacy.SGD(momentum=0.9),
    "legacy_adam": lambda k: k.optimizers.legacy.Adam(),
    "legacy_adam_amsgrad": lambda k: k.optimizers.legacy.Adam(amsgrad=True),
    "legacy_adam_schedule": lambda k: k.optimizers.legacy.Adam(_schedule(k)),
    "legacy_adamax": lambda k: k.optimizers.legacy.Adamax(),
    "legacy_nadam": lambda k: k.optimizers.legacy.Nadam(),
    "legacy_adagrad": lambda k: k.optimizers.legacy.Adagrad(),
    "legacy_adadelta": lambda k: k.optimizers.legacy.Adadelta(),
    "legacy_rmsprop": lambda k: k.optimizers.legacy.RMSprop(momentum=0.9, centered=True),
    "legacy_ftrl": lambda k: k.optimizers.legacy.Ftrl(),
    "scaled_legacy_adam": lambda k: _scaled(k, k.optimizers.legacy.Adam()),
}
OPTIMIZERS = BOTH_FLAVOURS | ONLY_KERAS_3 | ONLY_LEGACY

# As the ``flavour`` fixture has it, and the name of an optimizer.
IN_FLAVOUR = [
    (flavour, name)
    for flavour, kept in (
        ("keras3", BOTH_FLAVOURS | ONLY_KERAS_3),
        ("tf_keras", BOTH_FLAVOURS | ONLY_LEGACY),
    )
    for name in kept
]


def compiled(model, optimizer):
    """The model, its optimizer's variables made."""
    model.compile(optimizer=optimizer, loss="mse")
    if hasattr(optimizer, "_create_all_weights"):
        optimizer._create_all_weights(model.trainable_variables)
    else:
        optimizer.build(model.trainable_variables)
    return model


def step(optimizer, variables, loss):
    """One step that both flavors take in the same way, also of a loss that is scaled."""
    with tf.GradientTape() as tape:
        value = loss()
        for scale in ("scale_loss", "get_scaled_loss"):
            if hasattr(optimizer, scale):
                value = getattr(optimizer, scale)(value)
    gradients = tape.gradient(value, [inner(variable) for variable in variables])
    if hasattr(optimizer, "get_unscaled_gradients"):
        gradients = optimizer.get_unscaled_gradients(gradients)
    optimizer.apply_gradients(zip(gradients, variables, strict=True))
