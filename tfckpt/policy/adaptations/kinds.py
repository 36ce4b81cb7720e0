"""All kinds of ``adapt`` rules, chosen by ``how``: how a value is changed to fit a variable.

Keys are named as in NumPy and TensorFlow where these have a name.
"""

from __future__ import annotations

from typing import Annotated, Any, get_args

from pydantic import BeforeValidator, Discriminator, Tag

from tfckpt.core.similar import did_you_mean
from tfckpt.policy.adaptations.arrange import Reshape, Slice, Tile, Transpose
from tfckpt.policy.adaptations.compute import Cast, Resize
from tfckpt.policy.adaptations.fill import Pad, Vocabulary
from tfckpt.policy.adaptations.join import Concat, Function, Split
from tfckpt.policy.adaptations.operation import Adaptation
from tfckpt.policy.base.fields import fault
from tfckpt.policy.base.messages import TAG, show_value


def _check_how(value: Any) -> Any:
    if isinstance(value, Adaptation):
        return value
    if not isinstance(value, dict):
        raise fault(f"expected a mapping, found {show_value(value)}")
    how = value.get("how")
    if "how" not in value:
        raise fault("the key `how` is missing", hint=did_you_mean("", KINDS))
    if not isinstance(how, str) or how not in KINDS:
        hint = did_you_mean(how, KINDS) if isinstance(how, str) else ""
        raise fault(
            f"`how` must be a kind of adaptation, found {show_value(how)}", hint=hint, at="how"
        )
    return value


def _tag(value: Any) -> str:
    return TAG + str(value["how"] if isinstance(value, dict) else value.how)


_Any = (
    Annotated[Cast, Tag("\0cast")]
    | Annotated[Transpose, Tag("\0transpose")]
    | Annotated[Reshape, Tag("\0reshape")]
    | Annotated[Slice, Tag("\0slice")]
    | Annotated[Pad, Tag("\0pad")]
    | Annotated[Resize, Tag("\0resize")]
    | Annotated[Vocabulary, Tag("\0vocabulary")]
    | Annotated[Tile, Tag("\0tile")]
    | Annotated[Split, Tag("\0split")]
    | Annotated[Concat, Tag("\0concat")]
    | Annotated[Function, Tag("\0function")]
)
Adapt = Annotated[_Any, Discriminator(_tag), BeforeValidator(_check_how)]
# By ``how``.
KINDS: dict[str, type[Adaptation]] = {
    tag.tag.removeprefix(TAG): kind for kind, tag in map(get_args, get_args(_Any))
}
