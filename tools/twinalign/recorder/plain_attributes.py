"""What a model's layers keep beside tensors (a counter, whether a first update was made), as it was when it was built.

One model serves several passes, and each must begin with the model as it was built: its tensors are loaded anew, and
these attributes are set back.
"""

import copy
from typing import Any

from twinalign.backends.protocol import Backend

_SIMPLE = (bool, int, float, str, type(None))
_MOST = 10_000
"""Elements of a list that is kept; longer ones are tables, which a pass reads."""


class PlainAttributes:
    """Numbers, texts, and lists, sets and dictionaries of them, in the attributes of a model's layers and parameters,
    and which parameters train.

    An optimizer of paddle's with groups writes their rates and their weight decay into the parameters.
    """

    def __init__(self, backend: Backend, model: Any) -> None:
        self._layers: list[tuple[dict[str, Any], frozenset[str], dict[str, tuple[Any, Any]]]] = []
        self._backend, parameters = backend, backend.named_parameters(model).values()
        self._trainable = [(one, backend.trainable(one)) for one in parameters]
        for holder in (*backend.all_layers(model), *parameters):
            held: dict[str, Any] = holder.__dict__
            kept = {name: (value, copy.deepcopy(value)) for name, value in held.items() if _is_plain(name, value)}
            self._layers.append((held, frozenset(held), kept))

    @property
    def changed(self) -> bool:
        """Whether any of them is another by now, or has come since."""
        return any(
            any(name not in names and isinstance(value, _SIMPLE) for name, value in held.items())
            or any(held.get(name, self) is not value or value != as_built for name, (value, as_built) in kept.items())
            for held, names, kept in self._layers
        )

    def restore(self) -> None:
        """Set them back, and remove those that have come since."""
        for parameter, trainable in self._trainable:
            if self._backend.trainable(parameter) != trainable:
                self._backend.set_trainable(parameter, trainable)
        for held, names, kept in self._layers:
            for name in [name for name, value in held.items() if name not in names and isinstance(value, _SIMPLE)]:
                del held[name]
            for name, (value, as_built) in kept.items():
                if isinstance(value, list):
                    value[:] = copy.deepcopy(as_built)
                elif isinstance(value, (dict, set)):
                    value.clear()
                    value.update(copy.deepcopy(as_built))
                held[name] = value


def _is_plain(name: str, value: Any) -> bool:
    if name == "training":  # the mode of the pass, whoever sets it
        return False
    if isinstance(value, _SIMPLE):
        return True
    if name.startswith("_") or not isinstance(value, (list, dict, set)) or len(value) > _MOST:
        return False  # a framework keeps hooks and parts in containers whose names begin so
    inside = [*value, *value.values()] if isinstance(value, dict) else value
    return all(isinstance(item, _SIMPLE) for item in inside)
