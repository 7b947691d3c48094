"""Objects that a call is given beside tensors and may write to, such as a cache of keys and values.

A call that runs again must find them as they were: a cache that holds this call's own keys already gives others.
"""

import copy
from collections.abc import Callable
from types import FunctionType, MethodType, ModuleType
from typing import Any

from twinalign.replay.nested_tensors import Place

_MOST = 4000
"""So many members of arguments are looked at; larger ones stay as they are."""
_NO_RECORDS = (Place, type, FunctionType, MethodType, ModuleType)


class Arguments:
    """The arguments of a call without its tensors, as they were before it.

    Args:
        skeleton: as `nested_tensors.take_apart` gives it.
        detached: makes of a tensor one with the same values and no graph.
    """

    def __init__(self, skeleton: Any, is_tensor: Callable[[Any], bool], detached: Callable[[Any], Any]) -> None:
        self._given, self._is_tensor, self._detached = skeleton, is_tensor, detached
        self._before = self._copied(skeleton)

    def settle(self) -> None:
        """After the call: forget the copy where none of these objects holds tensors."""
        self._found = False
        self._copied(self._given)
        if self._found:
            self._given = None
        else:
            self._before = self._given

    def again(self) -> Any:
        """The skeleton for another call, which may write to it."""
        return self._before if self._before is self._given else self._copied(self._before)

    def _copied(self, value: Any) -> Any:
        known: dict[int, Any] = {}
        try:
            return self._copy(value, known)
        except Exception:  # an object may not like to be copied, or be too large
            return value

    def _copy(self, value: Any, known: dict[int, Any]) -> Any:
        if self._is_tensor(value):
            self._found = True
            return self._detached(value)
        if id(value) in known:
            return known[id(value)]
        if len(known) > _MOST:
            raise OverflowError
        if type(value) in (list, dict):
            made = known[id(value)] = type(value)()
            if isinstance(value, dict):
                made.update({key: self._copy(member, known) for key, member in value.items()})
            else:
                made.extend(self._copy(member, known) for member in value)
            return made
        if type(value) is tuple:
            return tuple(self._copy(member, known) for member in value)
        if not _is_record(value):
            return value
        made = known[id(value)] = copy.copy(value)
        if (held := vars(made)) is not vars(value):
            held.update({name: self._copy(member, known) for name, member in vars(value).items()})
        return made


def _is_record(value: Any) -> bool:
    """Whether an object of a user's class keeps something; layers are none, whose state is kept elsewhere."""
    library = type(value).__module__.partition(".")[0] in ("torch", "paddle", "numpy", "builtins")
    return hasattr(value, "__dict__") and not isinstance(value, _NO_RECORDS) and not library and not callable(value)
