"""The converter's view of a model in its side's process: its layout, and a float64 run layer by layer."""

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.backends import state_layout as layouts
from twinalign.backends.protocol import Backend
from twinalign.conversion import storage
from twinalign.conversion.fingerprints import fingerprint
from twinalign.conversion.layers_to_match import matchables_of
from twinalign.conversion.linear_parts import Rows, split
from twinalign.conversion.separate_biases import Biases, with_biases
from twinalign.conversion.storage import Slot, Stored
from twinalign.errors import InputError


class TrialModel:
    """The model of one side, built when it is first needed and kept in float64 between runs."""

    def __init__(
        self,
        backend: Backend,
        framework: str,
        device: str,
        build: Callable[[], Any],
        forward: Callable[[Any, Mapping[str, Any]], Any] = lambda model, inputs: model(*inputs.values()),
    ) -> None:
        """`device`: `"cpu"` or `"gpu"`; `build` makes the model in the framework's default dtype.

        `forward` runs the model on its inputs by name.
        """
        self.backend, self.framework, self.device = backend, framework, device
        self._forward = forward
        self._make = build
        self._doubled: Any = None
        self._initial: dict[str, np.ndarray] = {}

    def _build(self, dtype: str) -> Any:
        with self.backend.default_dtype(dtype):
            return self._make()

    def layout(self) -> dict[str, Any]:
        """`layout`: what `describe_state` says of the model; `versions`: of its layers' parts of the state dict."""
        model = self._build("float32")
        return {"layout": self.backend.describe_state(model), "versions": self.backend.state_versions(model)}

    def _in_float64(self) -> Any:
        if self._doubled is None:
            try:
                self._doubled = self._build("float64")
            except InputError:
                raise
            except Exception:  # a constructor may insist on float32 constants; cast what it makes instead
                self._doubled = self._build("float32")
            state = self.backend.describe_state(self._doubled)
            if self.device != "cpu" or any(entry["dtype"] in ("float32", "float16", "bfloat16") for entry in state):
                self.backend.prepare_model(self._doubled, "float64", self.device)
            # A run leaves its weights behind: what the next one gives no weights to must not have them.
            self._initial = {key: np.array(array) for key, array in self.backend.state_items(self._doubled)}
        return self._doubled

    def run(
        self,
        inputs: str,
        outputs: str,
        weights: str | None,
        colours: Mapping[str, str],
        train: bool,
        rows: Rows,
        biases: Biases,
        turned: bool,
        positive: bool,
    ) -> list[dict[str, Any]]:
        """Run the model once in float64 and fingerprint the inputs and outputs of every layer call, in order.

        The weights are read from the .npz file `weights`, or made from `colours` (name of a layer or loose tensor → any
        text): the same colour gives the same weights in both frameworks. `rows`: the layers that are coloured in parts.
        `biases`: the layers that are coloured with a parameter beside them. `turned`: a matrix of the model's own may
        be the transpose of the other side's. `positive`: its other tensors get no negative numbers.
        The model's outputs go to the .npz `outputs`.
        """
        backend, model = self.backend, self._in_float64()
        if weights is not None:
            with np.load(weights, allow_pickle=False) as arrays:
                made = {**self._initial, **arrays}
        else:
            made = weights_of_colours(
                self.framework, backend.describe_state(model), self._initial, colours, rows, biases, turned, positive
            )
        backend.load_state_arrays(model, made)
        backend.set_training(model, train)
        calls: list[dict[str, Any]] = []

        def observe(path: str, layer: Any, given: list[Any], returned: list[Any]) -> None:
            calls.append(
                {
                    "path": path,
                    "layer": f"{type(layer).__name__}({described(layer)})",
                    "inputs": [fingerprint(backend.to_array(tensor)) for tensor in given],
                    "outputs": [fingerprint(backend.to_array(tensor)) for tensor in returned],
                }
            )

        with np.load(inputs, allow_pickle=False) as arrays:
            tensors = {name: backend.to_tensor(array, "float64", self.device) for name, array in arrays.items()}
        with backend.default_dtype("float64"), backend.no_grad(), backend.observing(model, observe):
            returned = self._forward(model, tensors)
        found: list[Any] = [backend.to_array(tensor) for tensor in backend.tensors_in(returned)]
        np.savez(outputs, **{str(number): array for number, array in enumerate(found)})
        return calls


def describe_model(service: Any, **which: Any) -> dict[str, Any]:
    """The layout of the model `service.trial_model(**which)`; see `TrialModel.layout`."""
    found: dict[str, Any] = service.trial_model(**which).layout()
    return found


def run_model(
    service: Any,
    inputs: str,
    outputs: str,
    weights: str | None = None,
    colours: Mapping[str, str] | None = None,
    train: bool = False,
    rows: Rows | None = None,
    biases: Biases | None = None,
    turned: bool = False,
    positive: bool = False,
    **which: Any,
) -> dict[str, Any]:
    """Run that model once in float64; see `TrialModel.run`."""
    model: TrialModel = service.trial_model(**which)
    calls = model.run(inputs, outputs, weights, colours or {}, train, rows or {}, biases or {}, turned, positive)
    return {"calls": calls}


def described(layer: Any) -> str:
    """The layer's own short description of its settings, in one line."""
    try:
        text = " ".join(str(layer.extra_repr()).split())
    except Exception:  # a user's layer may describe itself in any way it likes
        return ""
    # paddle's pooling layers do not show it.
    return f"{text}, ceil_mode=True" if getattr(layer, "ceil_mode", None) is True and "ceil_mode" not in text else text


def weights_of_colours(
    framework: str,
    layout: Sequence[Mapping[str, Any]],
    current: Mapping[str, np.ndarray],
    colours: Mapping[str, str],
    rows: Rows,
    biases: Biases,
    turned: bool,
    positive: bool = False,
) -> dict[str, np.ndarray]:
    """Every array of the state: floating-point ones made from their colours in float64, others as in `current`.

    Layers of the same colour get the same weights in both frameworks; a layer without one stays as it is. With `turned`
    a matrix that is a layer of its own, or a tensor of the model's own, gets them in either orientation. With
    `positive` the model's own tensors get them without a sign: a variance has none, and its root would be no number.
    Matrices keep theirs, for the other side may hold one as a layer.
    """
    entries = [layouts.StateEntry.of(entry) for entry in layout]
    layers = layouts.group_layers(entries, lambda bases: storage.absorbs(framework, bases))
    made = dict(current)
    pieces: dict[str, list[np.ndarray]] = {}
    stored: dict[str, Stored] = {}
    for matchable in split(with_biases(matchables_of(framework, layers), biases), rows):
        if matchable.name not in colours and not matchable.part:
            continue
        colour = colours.get(matchable.name, matchable.name)
        for part in matchable.stored:
            stored[part.entry.key] = part
            make = _matrix if turned and matchable.is_matrix else _canonical
            found = [make(slot, matchable.kind, colour) for slot in part.slots]
            if positive and matchable.kind == storage.RAW and not matchable.is_matrix:
                found = [np.abs(numbers) for numbers in found]
            pieces.setdefault(part.entry.key, []).extend(found)
    for key, part in stored.items():
        if current[key].dtype.kind == "f":
            joined = np.concatenate(pieces[key]) if len(pieces[key]) > 1 else pieces[key][0]
            joined = joined.T if part.transposed else joined
            made[key] = np.ascontiguousarray(joined).reshape(part.entry.shape)
    for entry in entries:
        if entry.persistent and entry.tied_to is not None:
            made[entry.key] = made[entry.tied_to]
    return made


def _matrix(slot: Slot, kind: str, colour: str) -> np.ndarray:
    """The same matrix, in the orientation that the shape asks for, whatever it is called and whoever holds it."""
    generator = np.random.default_rng(zlib.crc32(colour.encode()))
    short, long = sorted(size for size in slot.shape if size != 1)
    numbers = generator.standard_normal((short, long)) * math.sqrt(2.0 / long)
    return (numbers if slot.shape[0] == short else numbers.T).reshape(slot.shape)


def _canonical(slot: Slot, kind: str, colour: str) -> np.ndarray:
    """Random numbers that keep activations alive through deep networks: He-like weights, variances near one.

    A slot of the same size but another shape (a bias of (1, n)) gets the same numbers, and so do an embedding and a
    tensor of the same colour.
    """
    name = "" if kind in (storage.RAW, "embedding") else slot.name
    generator = np.random.default_rng(zlib.crc32(f"{colour}/{name}".encode()))
    numbers = generator.standard_normal(int(math.prod(slot.shape)))
    leaf = slot.name.rsplit(".", 1)[-1]
    if leaf == "running_var" or "magnitude" in slot.name:
        numbers = 1.0 + 0.2 * np.abs(numbers)
    elif "norm" in kind and leaf == "weight":
        numbers = 1.0 + 0.2 * numbers
    elif len(slot.shape) < 2 or leaf == "bias":
        numbers = 0.1 * numbers
    elif kind == "embedding" or kind == storage.RAW:
        numbers = 0.5 * numbers
    else:
        fan_in = math.prod(slot.shape[1:])
        numbers = numbers * math.sqrt(2.0 / max(fan_in, 1))
    return numbers.reshape(slot.shape)
