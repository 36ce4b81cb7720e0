"""Kinds of agents, and of modules without Keras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from zoo.kinds.parts import Made, X, dense, descend, loss_of, model_of, trained

# Agents


def q_network(k: Any) -> Any:
    layers = [*dense(k, 4, activation="relu"), k.layers.Dense(2, activation=None)]
    call = lambda self, x: self.value(self.encoder(x))  # noqa: E731
    return model_of(k, call, encoder=k.Sequential(layers[:1]), value=layers[1])


def replay(k: Any) -> tuple[Any, Callable[[], Any]]:
    buffer = tf.Module()
    buffer.table = tf.Variable(tf.zeros((5, 3)), trainable=False)
    buffer.last = tf.Variable(0, dtype=tf.int64, trainable=False)

    def seen() -> Any:
        at = int(buffer.last)
        buffer.table.scatter_nd_update([[at % 5]], [X[at % 4]])
        buffer.last.assign_add(1)
        return tf.convert_to_tensor(buffer.table)

    return buffer, seen


def dqn(k: Any) -> Made:
    """As TF-Agents has it: an agent with two networks, its optimizer, and counters; a buffer."""
    agent = tf.Module()
    agent.q_network, agent.target = q_network(k), q_network(k)
    agent.optimizer = k.optimizers.Adam(0.05)
    agent.train_step_counter = tf.Variable(0, dtype=tf.int64)
    buffer, seen = replay(k)

    def step() -> None:
        batch = seen()
        with tf.GradientTape() as tape:
            wanted = 1.0 + 0.9 * tf.reduce_max(agent.target(batch), 1)
            chosen = agent.q_network(batch)[:, 0]
            loss = tf.reduce_mean((chosen - wanted) ** 2)
        descend(agent.optimizer, tape, loss, agent.q_network.trainable_variables)
        agent.train_step_counter.assign_add(1)
        if int(agent.train_step_counter) % 2 == 0:
            pairs = zip(agent.target.variables, agent.q_network.variables, strict=True)
            for one, other in pairs:
                one.assign(other)

    counter = agent.train_step_counter
    return Made({"agent": agent, "replay_buffer": buffer, "global_step": counter}, step)


def sac(k: Any) -> Made:
    """Three networks; three optimizers as attributes, one of which is never used."""
    agent = tf.Module()
    agent.actor, agent.critic, agent.target = q_network(k), q_network(k), q_network(k)
    agent.log_alpha = tf.Variable(0.0)
    for name in ("actor_optimizer", "critic_optimizer", "alpha_optimizer"):
        setattr(agent, name, k.optimizers.Adam(0.05))

    def step() -> None:
        with tf.GradientTape(persistent=True) as tape:
            of_actor = loss_of(agent.actor(X)) * tf.exp(agent.log_alpha)
            of_critic = loss_of(agent.critic(X) - 0.9 * agent.target(X))
        descend(agent.actor_optimizer, tape, of_actor, agent.actor.trainable_variables)
        descend(agent.critic_optimizer, tape, of_critic, agent.critic.trainable_variables)
        for one, other in zip(agent.target.variables, agent.critic.variables, strict=True):
            one.assign(0.9 * one + 0.1 * other)

    return Made({"agent": agent}, step)


# Modules


class Lazy(tf.Module):
    """As Sonnet's: it makes its variables in its first call."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.units, self.w = units, None

    def __call__(self, x: Any) -> Any:
        if self.w is None:
            self.w = tf.Variable(tf.random.normal((x.shape[-1], self.units)), name="w")
            self.b = tf.Variable(tf.zeros((self.units,)), name="b")
        return tf.matmul(x, self.w) + self.b


class LazyMomentum(tf.Module):
    """As Sonnet's optimizers: their slots come with the first step."""

    def __init__(self) -> None:
        super().__init__()
        self.step, self.slots = tf.Variable(0, dtype=tf.int64), []

    def apply_gradients(self, pairs: list[tuple[Any, Any]]) -> None:
        if not self.slots:
            self.slots.extend(tf.Variable(tf.zeros(v.shape), trainable=False) for _, v in pairs)
        self.step.assign_add(1)
        for slot, (gradient, variable) in zip(self.slots, pairs, strict=True):
            slot.assign(0.9 * slot + gradient)
            variable.assign_sub(0.05 * slot)


def lazy_module(k: Any) -> Made:
    module = Lazy(2)

    def step() -> None:
        with tf.GradientTape() as tape:
            loss = loss_of(module(X))
        for one, variable in zip(
            tape.gradient(loss, (module.w, module.b)), (module.w, module.b), strict=True
        ):
            variable.assign_sub(0.1 * one)

    return Made({"module": module}, step)


def lazy_optimizer(k: Any) -> Made:
    module, optimizer = tf.Module(), LazyMomentum()
    module.layers = [Lazy(4), Lazy(2)]

    def step() -> None:
        with tf.GradientTape() as tape:
            loss = loss_of(module.layers[1](module.layers[0](X)))
        descend(optimizer, tape, loss, module.trainable_variables)

    return Made({"module": module, "optimizer": optimizer, "step": optimizer.step}, step)


def lazy_beside_keras(k: Any) -> Made:
    made, lazy = trained(k, k.Sequential(dense(k, 4, 2)), X), lazy_module(k)

    def step() -> None:
        made.step()
        lazy.step()

    return Made({**made.objects, **lazy.objects}, step)


def v1_adam(k: Any) -> Made:
    module, optimizer = tf.Module(), tf.compat.v1.train.AdamOptimizer(0.05)
    module.net, module.optimizer = k.Sequential(dense(k, 4, 2)), optimizer

    def step() -> None:
        with tf.GradientTape() as tape:
            loss = loss_of(module.net(X))
        descend(optimizer, tape, loss, module.net.trainable_variables)

    return Made({"module": module}, step)


KINDS: dict[str, Callable[[Any], Made]] = {
    "DQN": dqn,
    "SAC": sac,
    "lazy module": lazy_module,
    "lazy module, optimizer": lazy_optimizer,
    "lazy module beside": lazy_beside_keras,
    "v1 Adam": v1_adam,
}
