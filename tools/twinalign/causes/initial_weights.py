"""Causes that no edit of a layer shows: other initial weights, which the verdict names, and other ties of weights."""

from twinalign.causes.registry import Cause, enter
from twinalign.replay import ties
from twinalign.verdict.initial_weights import CAUSES

for _phase, _causes in (("initial", CAUSES), ("backward", ties.CAUSES)):
    for _id, _text in _causes.items():
        _difference = "linear_default_init" if _id == "initializer_left_at_paddle_default" else None
        enter(Cause(_id, _phase, _text, object, lambda subject: (), difference=_difference))
