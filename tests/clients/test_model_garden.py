"""TensorFlow Model Garden: its runner pretrains BERT, and a classifier begins with that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from clients.exchange import (
    IN_PLACE,
    Program,
    checksums,
    exchanged,
    in_place_of_tensorflow,
    kill,
    resumed,
)
from official.core import base_trainer, config_definitions, train_lib, train_utils
from official.modeling import optimization
from official.nlp.configs import bert, encoders
from official.nlp.data import pretrain_dataloader, sentence_prediction_dataloader
from official.nlp.tasks import masked_lm, sentence_prediction

import tfckpt

pytestmark = pytest.mark.long
STEPS, EVERY, KILLED = 8, 2, 6
WORDS, LENGTH, MASKED = 50, 8, 2
SMALL = {"hidden_size": 8, "num_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
NO_DROPOUT = {"dropout_rate": 0.0, "attention_dropout_rate": 0.0}
ENCODER = encoders.EncoderConfig(
    bert=encoders.BertEncoderConfig(
        vocab_size=WORDS, max_position_embeddings=LENGTH, **SMALL, **NO_DROPOUT
    )
)


def sentences(**more: tuple[int, ...]) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    sizes = {"input_word_ids": (4, LENGTH), **more}
    found = {name: draw.integers(2, size=size, dtype="int32") for name, size in sizes.items()}
    mask = np.ones((4, LENGTH), "int32")
    return {**found, "input_mask": mask, "input_type_ids": 0 * mask}


INPUTS = sentences(masked_lm_positions=(4, MASKED))


class Pretraining(masked_lm.MaskedLMTask):
    """The runner begins its data anew when it is resumed; so every batch is the same."""

    def build_inputs(self, params: Any, input_context: Any = None) -> tf.data.Dataset:
        batch = sentences(
            masked_lm_positions=(4, MASKED), masked_lm_ids=(4, MASKED), next_sentence_labels=(4, 1)
        )
        batch["masked_lm_weights"] = np.ones((4, MASKED), "float32")
        return tf.data.Dataset.from_tensors(batch).repeat()


def experiment(task: Any) -> config_definitions.ExperimentConfig:
    trainer = config_definitions.TrainerConfig(
        train_steps=STEPS,
        steps_per_loop=1,
        checkpoint_interval=EVERY,
        validation_interval=4,
        validation_steps=2,
        summary_interval=4,
        max_to_keep=2,
        best_checkpoint_export_subdir="best",
        best_checkpoint_eval_metric="lm_example_loss",
        best_checkpoint_metric_comp="lower",
        optimizer_config=optimization.OptimizationConfig(
            {
                "optimizer": {"type": "adamw_experimental"},
                "learning_rate": {"type": "constant", "constant": {"learning_rate": 0.01}},
            }
        ),
    )
    return config_definitions.ExperimentConfig(task=task, trainer=trainer)


PRETRAINING = experiment(
    masked_lm.MaskedLMConfig(
        model=bert.PretrainerConfig(
            encoder=ENCODER,
            cls_heads=[
                bert.ClsHeadConfig(
                    inner_dim=8, num_classes=2, dropout_rate=0.0, name="next_sentence"
                )
            ],
        ),
        train_data=pretrain_dataloader.BertPretrainDataConfig(),
        validation_data=pretrain_dataloader.BertPretrainDataConfig(is_training=False),
    )
)


def trainer_of(seed: int, exporter: Any = None) -> base_trainer.Trainer:
    tf_keras.utils.set_random_seed(seed)
    task = Pretraining(PRETRAINING.task)
    return train_utils.create_trainer(
        PRETRAINING, task, train=True, evaluate=True, checkpoint_exporter=exporter
    )


def variables(trainer: base_trainer.Trainer) -> list[tf.Variable]:
    return [*trainer.model.variables, *trainer.optimizer.variables, trainer.global_step]


def build(seed: int) -> Program:
    trainer = trainer_of(seed)
    model = trainer.model
    return Program(
        {
            "global_step": trainer.global_step,
            "model": model,
            "optimizer": trainer.optimizer,
            **model.checkpoint_items,
        },
        lambda: variables(trainer),
        train=lambda: trainer.train(tf.constant(1)),
        output=lambda: model(INPUTS)["mlm_logits"],
    )


def train(directory: str, stop: int | None) -> list[str]:
    in_place_of_tensorflow()
    trainer = trainer_of(1, train_lib.maybe_create_best_ckpt_exporter(PRETRAINING, directory))
    trainer.model(INPUTS)
    begin = trainer.train_loop_begin

    def begin_or_stop() -> None:
        kill(trainer.global_step, stop)
        begin()

    trainer.train_loop_begin = begin_or_stop
    strategy = tf.distribute.get_strategy()
    train_lib.run_experiment(
        strategy, trainer.task, "train_and_eval", PRETRAINING, directory, trainer=trainer
    )
    return checksums(variables(trainer))


def test_a_trainer_that_has_not_called_its_model_is_refused(tmp_path, outcome) -> None:
    outcome("refused: call the model once on a batch before restoring")
    old, new = trainer_of(1), trainer_of(2)
    old.train(tf.constant(1))
    path = tf.train.Checkpoint(model=old.model, **old.model.checkpoint_items).save(
        str(tmp_path / "ckpt")
    )
    with pytest.raises(tfckpt.NotBuiltError, match="call the model once on a batch"):
        tfckpt.Checkpoint(model=new.model, **new.model.checkpoint_items).restore(path)


@pytest.mark.parametrize("checkpoint", [tf.train.Checkpoint, tfckpt.Checkpoint])
def test_a_classifier_begins_with_a_pretrained_encoder(
    checkpoint, tmp_path, monkeypatch, outcome
) -> None:
    outcome(f"with one line: {IN_PLACE}")
    program = build(1)
    program.train()
    path = checkpoint(**program.objects).save(str(tmp_path / "ckpt"))
    monkeypatch.setattr(tf.train, "Checkpoint", tfckpt.Checkpoint)
    config = sentence_prediction.SentencePredictionConfig(
        init_checkpoint=path,
        model=sentence_prediction.ModelConfig(num_classes=2, encoder=ENCODER),
        train_data=sentence_prediction_dataloader.SentencePredictionDataConfig(),
    )
    task = sentence_prediction.SentencePredictionTask(config)
    model = task.build_model()
    task.initialize(model)
    found, expected = model.checkpoint_items["encoder"], program.objects["encoder"]
    for one, other in zip(found.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


test_a_trainer_is_exchanged_with_tensorflow = exchanged(build)
test_a_killed_run_experiment_goes_on_exactly = resumed(
    __file__,
    KILLED,
    f"with one line: {IN_PLACE}; and with one that calls the model",
    then=lambda run: all(tf.train.latest_checkpoint(str(each)) for each in (run, run / "best")),
)
