"""TF-Agents: a DQN agent with its replay buffer, saved and resumed by its Checkpointer."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from clients.exchange import (
    EVERY,
    IN_PLACE,
    STEPS,
    Program,
    checksums,
    exchanged,
    in_place_of_tensorflow,
    kill,
    resumed,
)
from tf_agents.agents.dqn import dqn_agent
from tf_agents.networks import q_network
from tf_agents.replay_buffers import tf_uniform_replay_buffer
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import StepType, time_step, trajectory
from tf_agents.utils import common

pytestmark = pytest.mark.long
SEEN = tf.TensorSpec((4,), tf.float32)
ACTION = tensor_spec.BoundedTensorSpec((), tf.int64, 0, 2)


class Player:
    """Plays one move that depends on the step alone, and learns from all that it remembers."""

    def __init__(self, seed: int) -> None:
        tf.keras.backend.clear_session()  # the buffer's variables have names that are counted
        tf.keras.utils.set_random_seed(seed)
        self.step = tf.Variable(0, dtype=tf.int64)
        self.agent = dqn_agent.DqnAgent(
            time_step.time_step_spec(SEEN),
            ACTION,
            q_network.QNetwork(SEEN, ACTION, fc_layer_params=(8,)),
            optimizer=tf.keras.optimizers.Adam(0.01),
            target_update_period=2,
            train_step_counter=self.step,
        )
        self.agent.initialize()
        self.memory = tf_uniform_replay_buffer.TFUniformReplayBuffer(
            self.agent.collect_data_spec, batch_size=1, max_length=10
        )

    def objects(self) -> dict[str, object]:
        return {"agent": self.agent, "replay_buffer": self.memory, "global_step": self.step}

    def variables(self) -> list[tf.Variable]:
        networks = (self.agent._q_network, self.agent._target_q_network)
        weights = [variable for network in networks for variable in network.variables]
        optimizer = sorted(self.agent._optimizer.variables(), key=self._of)
        return [*weights, *optimizer, *self.memory.variables(), self.step]

    @staticmethod
    def _of(slot: tf.Variable) -> str:
        """Slots are listed as they were created, and called `m/…` where a restore did that."""
        return slot.name.removeprefix("Adam/")

    def train(self) -> None:
        draw = np.random.default_rng(int(self.step))
        for _ in range(2):
            step_type = tf.fill([1], StepType.MID)
            seen = tf.constant(draw.normal(size=(1, 4)), tf.float32)
            action = tf.constant(draw.integers(3, size=1))
            reward, discount = tf.constant(draw.normal(size=(2, 1)), tf.float32)
            move = trajectory.Trajectory(
                step_type, seen, action, (), step_type, reward, tf.abs(discount)
            )
            self.memory.add_batch(move)
        remembered = self.memory.gather_all()
        pairs = tf.nest.map_structure(lambda each: each[:, -2:], remembered)
        self.agent.train(pairs)


def build(seed: int) -> Program:
    player = Player(seed)
    return Program(
        player.objects(),
        player.variables,
        player.train,
        output=lambda: player.agent._q_network(tf.ones((1, 4)))[0],
    )


def train(directory: str, stop: int | None) -> list[str]:
    in_place_of_tensorflow()
    player = Player(1)
    checkpointer = common.Checkpointer(directory, max_to_keep=2, **player.objects())
    checkpointer.initialize_or_restore()
    while player.step < STEPS:
        kill(player.step, stop)
        player.train()
        if player.step % EVERY == 0:
            checkpointer.save(player.step)
    return checksums(player.variables())


test_an_agent_is_exchanged_with_tensorflow = exchanged(build)
test_a_killed_agent_goes_on_exactly = resumed(
    __file__,
    needs=f"with one line: {IN_PLACE}",
    then=lambda run: (run / f"ckpt-{STEPS}.index").exists(),
)
