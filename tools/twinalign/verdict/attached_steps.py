"""Two attached trainers' recordings, step by step, under the reference's names and layouts."""

import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from twinalign.conversion.canonical_names import CanonicalNames, names_of_moves
from twinalign.conversion.convert_arrays import convert_state
from twinalign.conversion.rename_rules import wrapper_rules
from twinalign.errors import InputError
from twinalign.files.attached_recordings import AttachedRecording, rename_rules

HALVES = ("float16", "bfloat16")
QUANTITIES = (
    *(
        "weights",
        "untrained",
        "input",
        "layer",
        "output",
        "logits",
        "labels",
        "loss",
        "first_gradient",
        "unclipped",
        "gradient",
        "master",
        "state",
    ),
    *("setting", "updated", "updated_master", "updated_state", "buffer"),
)
"""In the order of execution; `layer` comes before the output that it leads to."""
OF_CALLS = ("input", "layer", "output", "logits", "labels", "loss")
BEFORE = ("weights", "state", "master")
"""What a step begins with; after a recorded step it is what that one left, unless something else moved it."""
_OF_CALL = re.compile(r"call(\d+)\.(input|layer|output|logits|labels)(?:\.(.*))?$|loss(\d+)()()$")


@dataclasses.dataclass(frozen=True)
class Name:
    """A recorded tensor's name, taken apart."""

    quantity: str
    call: int = 0
    state: str = ""
    """`moment1` and so on."""
    rest: str = ""
    """The parameter's or output's own name."""

    @classmethod
    def of(cls, name: str) -> "Name":
        if (of_call := _OF_CALL.match(name)) is not None:
            call, kind, rest, loss = of_call.group(1, 2, 3, 4)
            return cls("loss", int(loss)) if loss is not None else cls(kind, int(call), "", rest or "")
        quantity, _, rest = name.partition(".")
        if quantity in ("state", "updated_state"):
            state, _, rest = rest.partition(".")
            return cls(quantity, 0, state, rest)
        return cls(quantity, 0, "", rest)

    @property
    def of_parameter(self) -> bool:
        return self.quantity not in OF_CALLS


@dataclasses.dataclass
class Step:
    """One side's step: arrays by name, in the reference's names and layouts, and its facts."""

    number: int
    arrays: dict[str, np.ndarray]
    facts: dict[str, Any]

    def named(self, quantity: str, state: str = "") -> dict[str, np.ndarray]:
        """Parameter -> array of a quantity."""
        prefix = f"{quantity}.{state}." if state else f"{quantity}."
        return {name.removeprefix(prefix): a for name, a in self.arrays.items() if name.startswith(prefix)}

    def call_values(self, call: int, kind: str) -> dict[str, np.ndarray]:
        """Name -> array of what a call of a model was given (`input`) or returned (`output`)."""
        prefix = f"call{call}.{kind}"
        return {name.removeprefix(prefix).lstrip("."): a for name, a in self.arrays.items() if name.startswith(prefix)}

    @functools.cached_property
    def settings(self) -> dict[str, dict[str, Any]]:
        """Parameter -> settings of its optimizer's step."""
        return dict(self.facts.get("settings", {}))

    @property
    def losses(self) -> list[float]:
        """What each backward started from, without the scaler's factor."""
        return [float(loss) for loss in self.facts.get("numbers", {}).get("losses", ())]

    @property
    def events(self) -> list[str]:
        return list(self.facts.get("events", ()))

    @property
    def calls(self) -> list[dict[str, Any]]:
        return list(self.facts.get("calls", ()))

    def dtype(self, name: str) -> str:
        """As it was before a bfloat16 was recorded as float32."""
        return str(self.facts.get("dtypes", {}).get(name, self.arrays[name].dtype))


@dataclasses.dataclass
class Pair:
    """Both sides' recordings, and their steps of the same numbers."""

    recordings: tuple[AttachedRecording, AttachedRecording]
    reference: list[Step]
    port: list[Step]


Translate = Callable[[Step], Step]


def same_names(step: Step) -> Step:
    """Of a recording of the reference's own framework."""
    return step


def translation(reference: AttachedRecording, port: AttachedRecording) -> Translate:
    """Turns the port's steps into the reference's names and layouts, by the classes of both models' layers.

    Raises:
        InputError: the models' names differ, or they were attached under different names.
    """
    if reference.about["framework"] == port.about["framework"]:
        return same_names
    layouts = reference.about["layouts"], port.about["layouts"]
    if set(layouts[0]) != set(layouts[1]):
        raise InputError(
            f"{port.folder}: models {sorted(layouts[1])}, the reference has {sorted(layouts[0])}: attach both by the "
            "same names"
        )
    source = "ref" if reference.about["framework"] == "torch" else "paddle"
    names = {}
    for model, layout in layouts[0].items():
        shapes = {entry["key"]: tuple(entry["shape"]) for entry in layout if entry["persistent"]}
        arrays = {key: np.broadcast_to(np.float32(0), shape) for key, shape in shapes.items()}
        sides = (layout, layouts[1][model]) if source == "ref" else (layouts[1][model], layout)
        rename = rename_rules(port, model) or rename_rules(reference, model) or wrapper_rules(*sides)
        moves = convert_state(arrays, layout, layouts[1][model], source=source, rename=rename).moves
        names[model] = CanonicalNames(names_of_moves(moves, shapes))
    return functools.partial(_translated, names)


def _translated(names: Mapping[str, CanonicalNames], step: Step) -> Step:
    arrays: dict[str, np.ndarray] = {}
    dtypes: dict[str, str] = {}
    for name, array in step.arrays.items():
        for new, made in _renamed(names, name, array):
            arrays[new] = made
            dtypes[new] = step.dtype(name)
    settings = {
        new: kept for key, kept in step.settings.items() for new, _ in _renamed(names, f"weights.{key}", np.zeros(()))
    }
    settings = {name.removeprefix("weights."): kept for name, kept in settings.items()}
    return Step(step.number, arrays, {**step.facts, "settings": settings, "dtypes": dtypes})


def _renamed(names: Mapping[str, CanonicalNames], name: str, array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    parsed = Name.of(name)
    model, colon, key = parsed.rest.rpartition(":")
    if not parsed.of_parameter or model not in names:
        yield name, array
        return
    head = name[: len(name) - len(parsed.rest)]
    if array.shape == ():
        yield from ((f"{head}{model}{colon}{part.name}", array) for part in names[model].parts(key))
        return
    for _, new, made in names[model].to_reference([("", key, array)]):
        yield f"{head}{model}{colon}{new}", made


def read_steps(recording: AttachedRecording, translate: Translate) -> list[Step]:
    """The recorded steps, with gradients divided by the scaler's factor until they are unscaled."""
    found = []
    for number in recording.steps:
        step = Step(number, recording.arrays(number), recording.facts(number))
        found.append(translate(_unscaled(step)))
    return found


def _unscaled(step: Step) -> Step:
    scale = float(step.facts.get("numbers", {}).get("scale", 1.0))
    if scale == 1.0:
        return step
    events = step.events
    clip = next((place for place, event in enumerate(events) if event.startswith("clip")), len(events))
    scaled = ["loss", "first_gradient"] + (["unclipped"] if "unscale" not in events[:clip] else [])
    arrays = {
        name: array / array.dtype.type(scale) if Name.of(name).quantity in scaled else array
        for name, array in step.arrays.items()
    }
    return Step(step.number, arrays, step.facts)


def in_order(steps: Step) -> list[str]:
    """Names of a step's tensors in the order of execution."""

    def key(item: tuple[int, str]) -> tuple[int, int]:
        name = Name.of(item[1])
        rank = QUANTITIES.index(name.quantity) if name.quantity in QUANTITIES else len(QUANTITIES)
        stage = 1 if name.quantity in OF_CALLS else 0 if name.quantity in ("weights", "untrained") else 2
        # Calls and losses are recorded as they happen; a loss may be of several calls.
        return (stage, 0) if stage == 1 else (stage, rank)

    return [name for _, name in sorted(enumerate(steps.arrays), key=lambda item: (*key(item), item[0]))]


def pair_labels(reference: Step, port: Step) -> None:
    """Put probabilities of the classes in place of labels where either side smooths them or gives probabilities."""
    for call in range(min(len(reference.calls), len(port.calls))):
        name = f"call{call}.labels"
        sides = [step for step in (reference, port) if name in step.arrays and f"call{call}.logits" in step.arrays]
        if len(sides) == 2 and any(_are_soft(step, call) for step in sides):
            for step in sides:
                step.arrays[name] = _probabilities(step, call)


def _are_soft(step: Step, call: int) -> bool:
    return step.arrays[f"call{call}.labels"].dtype.kind == "f" or _smoothing(step, call) > 0


def _smoothing(step: Step, call: int) -> float:
    return float(step.calls[call].get("cross_entropy", {}).get("label_smoothing") or 0.0)


def _probabilities(step: Step, call: int) -> np.ndarray:
    """Of shape (rows, classes); zeros for a row that is ignored."""
    labels, classes = step.arrays[f"call{call}.labels"], step.arrays[f"call{call}.logits"].shape[-1]
    share, found = _smoothing(step, call), labels
    if labels.dtype.kind != "f":
        labels = labels.reshape(-1, 1)
        found = (np.arange(classes) == labels).astype(np.float32)
    found = found * np.float32(1 - share) + np.float32(share / classes)
    ignored = step.calls[call].get("cross_entropy", {}).get("ignore_index", -100)
    return found if labels is step.arrays[f"call{call}.labels"] else np.where(labels == ignored, np.float32(0), found)


def paired_calls(reference: Step, port: Step) -> Step:
    """The port's step with its inputs and outputs under the reference's names, by order where no name is shared."""
    arrays, dtypes = dict(port.arrays), dict(port.facts.get("dtypes", {}))
    for kind in ("input", "output"):
        for call in range(len(reference.calls)):
            prefix = f"call{call}.{kind}"
            first, second = (
                [n for n in s.arrays if n == prefix or n.startswith(f"{prefix}.")] for s in (reference, port)
            )
            if set(first) & set(second) or len(first) != len(second):
                continue
            kinds = [port.dtype(name) for name in second]
            arrays |= {theirs: arrays.pop(ours) for theirs, ours in zip(first, second, strict=True)}
            dtypes |= dict(zip(first, kinds, strict=True))
    return Step(port.number, arrays, {**port.facts, "dtypes": dtypes})
