"""Words of TensorFlow, Keras and PyTorch, and the keys of a config that mean them.

Who knows ``status.assert_consumed()`` or ``load_weights(by_name=True)`` writes these words into a
policy, or passes them to a call. They are no keys: what is said of them is the key.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

_BEST = [{"latest": 3}, {"best": 1, "monitor": "val_loss"}]
_SOME = ["model/body/**"]
_ITS_OWN: Final = 100  # where a word has a number, it is that

# Word → keys, by the section of a config that has them.
_KEYS: Final[dict[str, dict[str, dict[str, Any]]]] = {
    "policy": {
        "assert_consumed": {"assert": "consumed"},
        "assert_existing_objects_matched": {"assert": "existing_objects_matched"},
        "assert_nontrivial_match": {"assert": "nontrivial_match"},
        "assignment_map": {"rename": [{"checkpoint": "old/**", "model": "model/new/**"}]},
        "by_name": {"match": "name"},
        "compile": {},
        "experimental_skip_slot_variables": {"optimizer": {"slots": "reset"}},
        "objects_to_skip": {"exclude": _SOME},
        "skip_mismatch": {"on_shape_mismatch": "skip"},
        "strict": {},
        "var_list": {"include": _SOME},
    },
    "manager": {
        "backup_dir": {"directory": "runs/first"},
        "checkpoint_interval": {"save": {"every_steps": _ITS_OWN}},
        "delete_checkpoint": {"max_to_keep": 3},
        "experimental_enable_async_checkpoint": {"enable_async": True},
        "filepath": {"directory": "runs/first"},
        "initial_value_threshold": {"keep": _BEST},
        "keep_checkpoint_every_n_hours": {"keep": [{"latest": 3}, {"every_n_hours": _ITS_OWN}]},
        "mode": {"keep": _BEST},
        "monitor": {"keep": _BEST},
        "period": {"save": {"every_epochs": _ITS_OWN}},
        "restore_best_weights": {"load_best_when_done": True},
        "save_before_preemption": {"save": {"on_signal": ["SIGTERM"]}},
        "save_best_only": {"keep": _BEST},
        "save_every": {"save": {"every_steps": _ITS_OWN}},
        "save_freq": {"save": {"every_epochs": 1}},
        "save_steps": {"save": {"every_steps": _ITS_OWN}},
        "step_counter": {"save": {"every_steps": 100}},
    },
    "restore": {"init_fn": {"if_none": "initialize"}},
}
OF_OTHERS: Final = frozenset(word for words in _KEYS.values() for word in words)
# The keys where the value of the word is False; of all others nothing needs to be written then.
_BY_FALSE: Final[dict[str, dict[str, Any]]] = {
    "assert_consumed": {"assert": "none"},
    "assert_existing_objects_matched": {"assert": "none"},
    "compile": {"optimizer": "reset"},
    "strict": {"on_missing": "warn", "on_unexpected": "warn"},
}

# What has no key.
_RENAME = "a rename is {checkpoint: model/old/**, model: model/new/**}"
SAYS: Final = {
    "average": "average the checkpoints in ten lines of Python, docs/transform.md, and restore "
    "what they write",
    "from": _RENAME,
    "ema": "a policy with `ema: prefer` restores averages; Keras's `save_weights` then writes them",
    "lock": "`tfckpt plan CONFIG --model MODULE:CALLABLE --expect FILE` compares a plan with what "
    "`tfckpt plan --json` printed",
    "max_memory": "a restore holds the new values once; `verify: none` holds a few at a time",
    "on_exception": "SIGINT in `on_signal` saves on Ctrl-C; after an exception, a restart goes on "
    "from the last save",
    "save_weights_only": "leave it out: a restart also needs the optimizer",
    "to": _RENAME,
    "version": "this is a config; a policy has the keys that stand below its name in `policies`",
}

# Arguments of ModelCheckpoint and BackupAndRestore, and what `tfckpt.callbacks.resume` has instead.
RESUME: Final = {
    "backup_dir": "the directory is the second argument",
    "best": "`save_best=2` keeps the two best besides the newest",
    "delete_checkpoint": "`max_to_keep` says how many checkpoints are kept",
    "filepath": "the directory is the second argument; checkpoints in it are numbered",
    "initial_value_threshold": "`save_best` says how many are kept besides the newest",
    "period": "`every_n_epochs=2` saves at the end of every second epoch",
    "restore_best_weights": "`load_best_when_done=True` loads the best weights at the end",
    "save_before_preemption": "`on_signal=['SIGTERM']` saves before the process ends",
    "save_best_only": "`save_best=1` keeps the best besides the newest, which a restart needs",
    "save_weights_only": "a restart also needs the optimizer; `tfckpt export DIR FILE.weights.h5 "
    "--model MODULE:CALLABLE` writes the weights alone",
}


DEFAULT: Final = "leave it out: that is so without it"


class SectionKeys(NamedTuple):
    """Keys of a section of a config, each with its value; no keys where the defaults mean it."""

    section: str
    keys: dict[str, Any]


def meaning(word: str, value: Any) -> SectionKeys | None:
    """The keys that a word of another library means with a value; None for any other word.

    >>> meaning("by_name", True)
    SectionKeys(section='policy', keys={'match': 'name'})
    >>> meaning("strict", True).keys, meaning("strict", False).keys
    ({}, {'on_missing': 'warn', 'on_unexpected': 'warn'})
    """
    if word == "save_freq" and isinstance(value, int):  # Keras's: batches
        word = "save_steps"
    for section, words in _KEYS.items():
        if word in words:
            return SectionKeys(
                section, _with(words[word], value) if value else _BY_FALSE.get(word, {})
            )
    return None


def _with(keys: Any, value: Any) -> Any:
    """The keys, with the number that the word has."""
    if isinstance(keys, dict):
        return {key: _with(each, value) for key, each in keys.items()}
    if isinstance(keys, list):
        return [_with(each, value) for each in keys]
    return value if keys is _ITS_OWN and type(value) is int else keys
