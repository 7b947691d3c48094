"""Causes of other initial weights, which the verdict names: both sides' values fit the initialisers that they say."""

from twinalign.causes.registry import Cause, enter
from twinalign.verdict.initial_weights import CAUSES

_DIFFERENCES = {"initializer_left_at_paddle_default": "linear_default_init"}

for _id, _text in CAUSES.items():
    enter(Cause(_id, "initial", _text, object, lambda subject: (), difference=_DIFFERENCES.get(_id)))
