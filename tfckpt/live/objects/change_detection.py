"""Detects whether live objects have changed since they were last named.

Naming a value and gathering it into TensorFlow's object graph costs about 100 µs; seeing that it
has not changed costs one or two. Names, keys and the graph depend on attributes and on the contents
of lists and dicts. So every attribute of every object, and every member of every container, is
compared by identity with the earlier one, which stays referenced so that its id is not reused.
Properties of user classes are evaluated again (:mod:`tfckpt.live.variables.user_classes`).

Ignored are numbers, arrays and tensors on attributes, which change in training, and the bookkeeping
of Keras about calls, because names and keys do not depend on them. For a plain variable only what
names and saves it counts, and for one without a fixed shape its current shape.
"""

from __future__ import annotations

import enum
import sys
import types
import weakref
from collections import OrderedDict, deque
from functools import partial
from itertools import chain
from operator import attrgetter, is_, itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfckpt.live.private.attributes import (
    BOOKKEEPING,
    CHILDREN,
    COMPILED,
    OF_KERAS_VARIABLES,
    OF_NAMES,
    OF_VARIABLES,
    OF_WRAPPERS,
    SLICE,
)
from tfckpt.live.private.either_keras import value_of
from tfckpt.live.private.tensorflow import Reference, ResourceVariable, Trackable, wrap
from tfckpt.live.variables.flavors import flavors
from tfckpt.live.variables.user_classes import (
    UnsureError,
    check_iteration,
    methods_asked,
    own_classes,
    properties_asked,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Look = Callable[[Any], Iterable[Any]]
    Looks = tuple[Look, ...]
    Read = Callable[[], Iterator[Any]]

_WRAPPERS = (type(wrap({})), type(wrap((tf.Module(),))))  # proxies, without vars() of their own
_NUMBERS = (int, float, complex, np.generic)
_ARRAYS = (np.ndarray, tf.Tensor)
_PLAIN = (
    *_NUMBERS,
    str,
    bytes,
    type,
    type(None),
    enum.Enum,
    types.BuiltinFunctionType,
    types.FunctionType,
    types.MethodType,
    types.ModuleType,
    tf.DType,
    tf.TensorShape,
    type(tf.function(len)),
)
_values: Callable[[Any], Iterable[Any]] = dict.values
_AN_ARRAY = object()  # stands for an array, so as not to keep its memory


class Watch:
    """A record of live objects as they were when it was created.

    Raises:
        UnsureError: an object's class overrides what names depend on.
    """

    def __init__(self, roots: Iterable[Any]) -> None:
        found = _WatchedObjects(roots)
        objects, dicts, lists = found.objects, found.dicts, found.lists
        variables, bare, outer = found.variables, found.bare_variables, found.keras_variables
        classes = list(found.classes)
        self._flavors = flavors()
        self._questions = found.questions
        self._empty: tuple[Read, ...] = (
            lambda: map(itemgetter(SLICE), map(vars, bare)),
            lambda: chain.from_iterable(map(itemgetter(*OF_VARIABLES), map(vars, variables))),
            lambda: chain.from_iterable(map(itemgetter(*OF_KERAS_VARIABLES), map(vars, outer))),
        )
        self._equal = _now(
            lambda: map(len, map(vars, objects)),
            lambda: chain.from_iterable(map(vars, objects)),
            lambda: map(len, map(vars, bare)),
            lambda: map(len, map(vars, variables)),
            lambda: map(len, map(vars, outer)),
            lambda: map(len, dicts),
            lambda: map(len, lists),
            lambda: map(len, map(vars, classes)),
        )
        self._same = _now(
            lambda: map(type, objects),
            lambda: map(attrgetter("handle"), bare),
            lambda: map(attrgetter("handle"), variables),
            lambda: chain.from_iterable(map(itemgetter(*OF_NAMES), map(vars, outer))),
            lambda: chain.from_iterable(dicts),
            lambda: chain.from_iterable(map(_values, dicts)),
            lambda: chain.from_iterable(lists),
            lambda: (getattr(o, name, None) for o in found.wrappers for name in OF_WRAPPERS),
            lambda: chain.from_iterable(vars(cls) for cls in classes),
            lambda: chain.from_iterable(vars(cls).values() for cls in classes),
        )
        self._attributes: Read = lambda: chain.from_iterable(map(_values, map(vars, objects)))
        self._values = [_AN_ARRAY if _holds_no_object(v) else v for v in self._attributes()]

    def unchanged(self) -> bool:
        """Whether nothing has changed."""
        return (
            self._flavors == flavors()
            and not any(any(read()) for read in self._empty)
            and all(list(read()) == before for read, before in self._equal)
            and all(all(map(is_, read(), before)) for read, before in self._same)
            and self._same_attributes()
            and all(_same_answer(ask, before) for ask, before in self._questions)
        )

    def _same_attributes(self) -> bool:
        if all(map(is_, self._attributes(), self._values)):
            return True
        return all(
            _decides_nothing(now, before)
            for now, before in zip(self._attributes(), self._values, strict=True)
            if now is not before
        )


def _now(*reads: Read) -> list[tuple[Read, list[Any]]]:
    return [(read, list(read())) for read in reads]


class _WatchedObjects:
    """Everything to watch below some objects.

    Attributes:
        objects: objects of which all attributes count.
        dicts: dicts.
        lists: other containers, and ordered dicts for their order.
        wrappers: TensorFlow's proxies of dicts and tuples.
        variables: plain variables without children.
        bare_variables: those that TensorFlow has not yet initialized as trackables.
        keras_variables: Keras 3's, each around another.
        classes: user classes.
        questions: properties to evaluate again, with their values.
    """

    def __init__(self, roots: Iterable[Any]) -> None:
        self.objects: list[Any] = []
        self.dicts: list[Any] = []
        self.lists: list[Any] = []
        self.wrappers: list[Any] = []
        self.variables: list[Any] = []
        self.bare_variables: list[Any] = []
        self.keras_variables: list[Any] = []
        self.classes: dict[type, None] = {}
        self.questions: list[tuple[Callable[[], Any], Any]] = []
        self._keras_variable = getattr(sys.modules.get("keras"), "Variable", None)
        self._kinds = (Trackable, *chain(*((one.metric, *one.seeds) for one in flavors())))
        looks: dict[type, Looks] = {}
        seen: dict[int, Any] = {}
        stack = list(roots)
        while stack:
            obj = stack.pop()
            cls = type(obj)
            if cls not in looks:
                looks[cls] = self._looks(cls)
            if looks[cls] and id(obj) not in seen:
                seen[id(obj)] = obj
                for look in looks[cls]:
                    stack.extend(look(obj))

    def _looks(self, cls: type) -> Looks:
        """How to look at objects of a class; each function returns what to look at next."""
        if issubclass(cls, (*_PLAIN, *_ARRAYS)):
            return ()
        if cls in _WRAPPERS:
            return (self._wrapper,)
        if any("__class__" in vars(base) for base in cls.__mro__[:-1]):
            raise UnsureError(f"{cls.__qualname__}.__class__")  # it poses as another class
        if issubclass(cls, (weakref.ref, Reference)):
            return (_referent,)
        looks: list[Look] = []
        if issubclass(cls, self._kinds) or (cls.__module__ in COMPILED and cls.__dictoffset__):
            looks.append(partial(self._object, methods_asked(cls)))
            looks += [partial(self._property, name) for name in properties_asked(cls)]
        for kinds, look in (
            ((dict,), self._dict),
            ((list, set, deque), self._list),
            ((tuple, frozenset), iter),
        ):
            if issubclass(cls, kinds):
                looks.append(look)
        if looks:
            check_iteration(cls)
            self.classes.update(dict.fromkeys(own_classes(cls)))
        return tuple(looks)

    def _object(self, methods: frozenset[str], obj: Any) -> Iterable[Any]:
        attributes: dict[str, Any] = vars(obj)
        prepared = CHILDREN in attributes
        alone = not any(attributes.get(name) for name in OF_VARIABLES)
        if type(obj) is ResourceVariable and alone:
            (self.variables if prepared else self.bare_variables).append(obj)
            found: Iterable[Any] = ()
        elif type(obj) is self._keras_variable and alone and prepared:
            self.keras_variables.append(obj)
            found = (value_of(obj),)
        else:
            for name in methods & attributes.keys():
                if callable(attributes[name]) and not isinstance(attributes[name], Trackable):
                    raise UnsureError(f"{type(obj).__qualname__}.{name}")
            self.objects.append(obj)
            found = (value for name, value in attributes.items() if name not in BOOKKEEPING)
        if isinstance(obj, tf.Variable) and not obj.shape.is_fully_defined():
            self._ask(lambda: tuple(tf.shape(obj, tf.int64).numpy().tolist()))
        return found

    def _wrapper(self, wrapper: Any) -> Iterable[Any]:
        self.wrappers.append(wrapper)
        return (getattr(wrapper, name, None) for name in OF_WRAPPERS)

    def _dict(self, mapping: Any) -> Iterable[Any]:
        self.dicts.append(mapping)
        if isinstance(mapping, OrderedDict):
            self.lists.append(mapping)
        return _values(mapping)

    def _list(self, members: Any) -> Iterable[Any]:
        self.lists.append(members)
        return list(members)

    def _property(self, name: str, obj: Any) -> Iterable[Any]:
        try:
            answer = self._ask(lambda: getattr(obj, name))
        except Exception as error:
            raise UnsureError(f"{type(obj).__qualname__}.{name}") from error
        return answer if isinstance(answer, tuple) else (answer,)

    def _ask(self, question: Callable[[], Any]) -> Any:
        answer = _answer(question)
        self.questions.append((question, answer))
        return answer


def _referent(reference: Any) -> Iterable[Any]:
    return (reference() if isinstance(reference, weakref.ref) else reference.ref,)


def _answer(question: Callable[[], Any]) -> Any:
    answer = question()
    return tuple(answer) if isinstance(answer, list) else answer


def _same_answer(question: Callable[[], Any], before: Any) -> bool:
    try:
        now = _answer(question)
    except Exception:  # naming evaluates it again, and may raise there
        return False
    if isinstance(before, tuple) and isinstance(now, tuple):
        return len(now) == len(before) and all(map(_is_same, now, before))
    return _is_same(now, before)


def _is_same(now: Any, before: Any) -> bool:
    return now is before or (
        type(now) is type(before) and isinstance(now, (str, int, float)) and now == before
    )


def _holds_no_object(value: Any) -> bool:
    """Whether it is an array, or a tensor of numbers or strings."""
    return isinstance(value, np.ndarray) or (
        isinstance(value, tf.Tensor) and value.dtype not in (tf.resource, tf.variant)
    )


def _decides_nothing(now: Any, before: Any) -> bool:
    """Whether an attribute has changed only in a way on which no name and no key depends."""
    if before is _AN_ARRAY:
        return _holds_no_object(now)
    if isinstance(now, str) and isinstance(before, str):
        return now == before
    numbers = isinstance(now, _NUMBERS) and isinstance(before, _NUMBERS)
    return numbers and not isinstance(now, bool) and not isinstance(before, bool)
