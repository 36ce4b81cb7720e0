"""What Keras's callbacks count in: a release that adds an attribute shows here."""

from __future__ import annotations

import dis
import inspect

from tfckpt.live.private import callbacks
from tfckpt.training.state import callback_state


def test_every_attribute_that_keras_counts_in_is_known(flavour) -> None:
    public = inspect.getmembers(flavour.callbacks, inspect.isclass)
    kinds = {k for _, k in public if issubclass(k, flavour.callbacks.Callback)}
    kinds -= {flavour.callbacks.Callback, flavour.callbacks.CallbackList}
    for kind in kinds:
        base = next(k.__name__ for k in kind.__mro__ if k.__name__ in callbacks.STATE)
        known = {*callbacks.OF_ALL, *callbacks.STATE[base]}
        known.update(*(callbacks.NO_STATE.get(name, "").split() for name in (base, kind.__name__)))
        for parent in kind.__mro__:
            for name, method in vars(parent).items():
                if inspect.isfunction(method) and name not in callbacks.SET_UP:
                    code = dis.get_instructions(method)
                    stored = {each.argval for each in code if each.opname == "STORE_ATTR"}
                    assert stored <= known, (kind, name)


def test_an_attribute_that_no_table_has_is_said(flavour, monkeypatch) -> None:
    table = {**callbacks.STATE, "EarlyStopping": ("stopped_epoch", "best", "best_epoch")}
    monkeypatch.setattr(callback_state, "STATE", table)
    callback_state._unknown_of_keras.cache_clear()
    said = callback_state.inexact([flavour.callbacks.EarlyStopping()])
    callback_state._unknown_of_keras.cache_clear()
    assert len(said) == 1
    assert "EarlyStopping is reset when training resumes (wait): tfckpt does not know" in said[0]
    assert f"{flavour.__name__} {flavour.__version__} (tested: " in said[0]
