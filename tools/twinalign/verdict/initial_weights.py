"""Whether both freshly built models start from the same distribution, parameter by parameter.

The reproduction guide's tenth step. Constants, tables and elements that no seed changes are compared exactly; random
values by four two-sample tests: mean, deviation, distribution (Kolmogorov-Smirnov) and how far the tails reach. Of all
tests of a model together, one in a million right models fails (Bonferroni's bound), so that a difference is no chance.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.case.moved_values import rounding_of_table
from twinalign.files.recordings import Recording
from twinalign.sides import SIDES
from twinalign.verdict.arrangements import rearranged
from twinalign.verdict.initial_scale import deviation_ratio, fitting_factors
from twinalign.verdict.initializers import Initializer, described, families_of, fitting, kolmogorov
from twinalign.verdict.results import ALIGNED, DIVERGED, INCONCLUSIVE, JsonFields
from twinalign.verdict.stage_recordings import StageRecordings

ERROR_RATE = 1e-6
"""Probability that a model that starts like its reference is said to differ."""
_TESTS = 4
_ENOUGH_FOR_MOMENTS = 1000
"""Values from which means and deviations are normally distributed well enough out to six deviations."""
_ORTHOGONAL = 1e-4
_CENTRED = 6.0
"""Standard errors by which the mean of what is drawn around 0 may be off."""
_DEVIATION = "the deviation is"
_FIXED = "values that no seed changes differ"


CAUSES = {
    "initializer_left_at_paddle_default": "the parameter starts as paddle's own default for this class of layer",
    "initializer_scale_differs": "the initial values have the right family of distribution and another scale",
    "initializer_fan_exchanged": "the initialiser's scale follows the fan out for the fan in, or the other way round",
    "initializer_truncation_differs": "the normal distribution of the initial values is cut off, or should be",
    "initializer_family_differs": "the initial values have another family of distribution",
    "initial_constant_differs": "the parameter starts at another constant",
    "initial_value_constant": "the parameter starts at a constant where the reference draws it",
    "initial_value_random": "the parameter is drawn where the reference has fixed values",
    "initial_table_differs": "a table of fixed initial values differs",
}
"""Id of each cause of a difference and what it says of the port."""


@dataclasses.dataclass
class InitialDifference(JsonFields):
    """One tensor that starts otherwise in the port."""

    name: str
    port_name: str
    layer: str
    """Class of the port's layer."""
    text: str
    """What differs, in one sentence."""
    reference: str
    """What the reference's values are."""
    port: str
    cause: str | None = None
    """Id of the cause, if both sides' initialisers are known."""
    remedy: str | None = None
    """What to write in the port."""


@dataclasses.dataclass
class InitialWeights(JsonFields):
    """How the initial weights of the two models compare."""

    verdict: str
    tensors: int
    """Compared tensors."""
    seeds: int
    counts: bool = False
    """Whether a difference counts for the verdict of the whole run."""
    differences: list[InitialDifference] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "differences": [one.to_json() for one in self.differences]}


@dataclasses.dataclass(frozen=True)
class _Tensor:
    """What was recorded of one tensor on one side."""

    draws: np.ndarray
    """[seeds, elements], float32."""
    extremes: np.ndarray
    """[seeds, 2]: least and largest."""
    gram: float | None

    @classmethod
    def of(cls, recording: Recording, name: str) -> "_Tensor":
        found = recording.arrays.get(f"gram/{name}")
        return cls(
            recording.arrays[f"draws/{name}"],
            recording.arrays[f"extremes/{name}"],
            None if found is None else float(found[0]),
        )

    @property
    def fixed(self) -> np.ndarray:
        """Which elements every seed gives the same value, [elements]."""
        return (self.draws == self.draws[0]).all(axis=0)

    @property
    def is_table(self) -> bool:
        """Whether several seeds gave the same values."""
        return len(self.draws) > 1 and bool(self.fixed.all())

    @property
    def orthogonal(self) -> bool:
        return self.gram is not None and self.gram < _ORTHOGONAL

    def gain(self, shape: Sequence[int]) -> str:
        """Factor of an orthogonal matrix `[rows, *columns]`, from the mean square of its elements; empty if it is 1."""
        found = float(np.sqrt(np.square(self.draws, dtype=np.float64).mean() * max(shape[0], math.prod(shape[1:]))))
        written = f"{found:.{3 if self.draws.shape[1] == math.prod(shape) else 2}g}"
        return "" if written in ("1", "1.0") else written

    @property
    def constant(self) -> float | None:
        """The value of all elements with every seed, if there is one."""
        low, high = self.extremes[:, 0].min(), self.extremes[:, 1].max()
        return float(low) if low == high else None


def compare_initial(recordings: StageRecordings, counts: bool = False) -> InitialWeights:
    """Compare what both sides recorded in `twinalign.stages.initial`.

    `counts`: whether a difference counts for the verdict of the whole run.

    A side on which no seed changes anything (it loads weights, or seeds the generator itself) gives one draw; where
    that is the reference and its port is random, the distributions of this one draw are compared.
    """
    reference, port = (recordings.by_key[side, recordings.judged_dtype] for side in SIDES)
    shapes: Mapping[str, Sequence[int]] = reference.metadata["initial"]["shapes"]
    classes: Mapping[str, str] = port.metadata["initial"]["classes"]
    port_names: Mapping[str, str] = port.metadata["initial"]["own_names"]
    own_shapes: Mapping[str, Sequence[int]] = port.metadata["initial"].get("own_shapes", {})
    names = [name for name in shapes if f"draws/{name}" in port.arrays]
    sides = [{name: _Tensor.of(one, name) for name in names} for one in (reference, port)]
    seeded = [all(tensor.fixed.all() for tensor in side.values()) for side in sides]
    for number, one in enumerate(seeded):
        if one:
            sides[number] = {name: _first_draw(tensor) for name, tensor in sides[number].items()}
    seeds = max((len(tensor.draws) for tensor in sides[0].values()), default=0)
    if seeded[0] and _trained(sides[0], shapes):
        note = "no seed changes the reference's weights, and no initialiser explains them: they seem to be trained"
        return InitialWeights(INCONCLUSIVE, 0, seeds, counts, notes=[note])
    level = ERROR_RATE / max(_TESTS * len(names), 1)
    found = InitialWeights(ALIGNED, len(names), seeds, counts)
    for name in names:
        first, second = (side[name] for side in sides)
        text = _difference(first, second, seeded, level, shapes[name])
        if text is not None:
            weight = shapes.get(name.removesuffix("bias") + "weight") if name.endswith("bias") else None
            place = (name, port_names[name], classes.get(name, ""))
            own = own_shapes.get(name, shapes[name])
            found.differences.append(_named(place, text, first, second, shapes[name], weight, names, own))
    # What the port holds in one place only, it takes from there, as a head without a layer that uses the embedding.
    ties = [
        {tuple(pair) for pair in one.metadata["initial"]["tied"] if port_names.keys() >= {*pair}}
        for one in (reference, port)
    ]
    for name, other in sorted(ties[0] ^ ties[1]):
        shared = "the reference's alone" if (name, other) in ties[0] else "the port's alone"
        found.notes.append(f"{name} and {other} are one tensor on one side, {shared}: they train differently")
    for side, one in zip(("reference", "port"), seeded, strict=True):
        if one and any(tensor.constant is None for tensor in sides[side == "port"].values()):
            found.notes.append(f"no seed changes the {side}'s weights, so one draw of them was compared")
    found.verdict = DIVERGED if found.differences or ties[0] ^ ties[1] else ALIGNED
    return found


def _trained(reference: Mapping[str, _Tensor], shapes: Mapping[str, Sequence[int]]) -> bool:
    """Whether most of the large tensors fit no known initialiser, as after training."""
    large = [name for name, one in reference.items() if one.draws.size >= _ENOUGH_FOR_MOMENTS and one.constant is None]
    known = sum(reference[name].orthogonal or bool(fitting(reference[name].draws, shapes[name])) for name in large)
    return known < len(large) / 2


def _first_draw(tensor: _Tensor) -> _Tensor:
    return _Tensor(tensor.draws[:1], tensor.extremes[:1], tensor.gram)


def _difference(
    first: _Tensor, second: _Tensor, seeded: Sequence[bool], level: float, shape: Sequence[int]
) -> str | None:
    """What differs, or None."""
    if first.constant is not None or second.constant is not None:
        if first.constant == second.constant or _alike_by_chance(first, second) >= level:
            return None
        kinds = ["random" if one.constant is None else "constant" for one in (first, second)]
        return f"{kinds[0]} in the reference, {kinds[1]} in the port"
    if first.draws.shape[1] != second.draws.shape[1]:
        return "the shape differs"
    random = [
        np.ones(one.draws.shape[1], bool) if alone else ~one.fixed
        for one, alone in zip((first, second), seeded, strict=True)
    ]
    if any(seeded):
        random = [random[0] | random[1]] * 2 if not all(seeded) else random
        if np.array_equal(first.draws[0], second.draws[0]):
            return None
    if (random[0] != random[1]).any():
        count = int((random[0] != random[1]).sum())
        return f"{count} of {random[0].size} elements are random on one side alone"
    fixed = ~random[0]
    apart = np.abs(first.draws[0] - second.draws[0])[fixed]
    if (apart > rounding_of_table(first.draws, shape)).any():
        return f"{_FIXED} by up to {apart.max():.2g}"
    if not random[0].any():
        return None
    if None not in (first.gram, second.gram) and first.orthogonal != second.orthogonal:
        return f"only the {'reference' if first.orthogonal else 'port'}'s rows are orthogonal"
    return next((text for text, chance in _chances(first, second, random[0]) if chance < level), None)


def _alike_by_chance(one: _Tensor, other: _Tensor) -> float:
    """The chance that all draws of a constant tensor are alike, if it is drawn as the other is: a sign, say."""
    drawn, alike = (one, other) if one.constant is None else (other, one)
    return float((drawn.draws == alike.constant).mean()) ** alike.draws.size


def _chances(first: _Tensor, second: _Tensor, random: np.ndarray) -> Iterator[tuple[str, float]]:
    """What may differ, and the probability (an upper bound) that draws of one distribution differ by as much."""
    samples = [one.draws[:, random].astype(np.float64).ravel() for one in (first, second)]
    sizes = [one.size for one in samples]
    if min(sizes) >= _ENOUGH_FOR_MOMENTS:
        means, (ratio, spread) = [one.mean() for one in samples], deviation_ratio(*samples)
        error = math.sqrt(sum(one.var() / one.size for one in samples))
        yield f"{_DEVIATION} {ratio:.3g} times the reference's", _normal_tail(math.log(ratio) / spread)
        yield f"the mean differs by {means[1] - means[0]:.3g}", _normal_tail((means[1] - means[0]) / error)
    yield "the distribution has another shape", _two_samples(*samples)
    further = "port" if np.abs(samples[1]).max() > np.abs(samples[0]).max() else "reference"
    yield f"the {further}'s values reach further", _run_of_extremes(*samples)


def _normal_tail(deviations: float) -> float:
    return math.erfc(abs(deviations) / math.sqrt(2.0))


def _two_samples(first: np.ndarray, second: np.ndarray) -> float:
    """Kolmogorov-Smirnov's test of two samples: the chance of a distance as large."""
    both = np.sort(np.concatenate([first, second]))  # in order, each is found beside the one before it
    steps = [np.searchsorted(np.sort(one), both, side="right") / one.size for one in (first, second)]
    harmonic = first.size * second.size / (first.size + second.size)
    return kolmogorov(float(np.abs(steps[0] - steps[1]).max()) * math.sqrt(harmonic))


def _run_of_extremes(first: np.ndarray, second: np.ndarray) -> float:
    """The chance that so many of the largest values, or of the smallest, are all of one side (Tukey's quick test)."""
    total = first.size + second.size
    chances = [
        (one.size / total) ** max(int((one > other.max()).sum()), int((one < other.min()).sum()))
        for one, other in ((first, second), (second, first))
    ]
    return min(1.0, 4.0 * min(chances))


def _named(
    place: tuple[str, str, str],
    text: str,
    first: _Tensor,
    second: _Tensor,
    shape: Sequence[int],
    weight: Sequence[int] | None,
    names: Sequence[str],
    own_shape: Sequence[int],
) -> InitialDifference:
    """A difference with both sides' initialisers, and the cause where they are known.

    `place`: the tensor's name in the reference, its name in the port, and the class of the port's layer. `names`: of
    all tensors in the reference. `own_shape`: that of the port's tensor as the port has it.
    """
    known = [
        [] if one.constant is not None or one.orthogonal or one.is_table else fitting(one.draws, shape, weight)
        for one in (first, second)
    ]
    if weight is None and "weight" not in place[0].rpartition(".")[2]:  # a table of a layer's own has no fans
        known = [sorted(side, key=lambda one: one.digits != 1) for side in known]
    # A test has told the two apart, so what the reference starts from is not what the port starts from.
    known[1] = [one for one in known[1] if one not in known[0][:1]]
    said = [_said(one, found, shape) for one, found in zip((first, second), known, strict=True)]
    if first.orthogonal:
        gain = first.gain(shape)
        remedy: str | None = f"Orthogonal(gain={gain})" if gain else "Orthogonal()"
    elif first.constant is not None:
        remedy = f"Constant({first.constant:g})"
    else:
        # A few values fit several families, of which any may be wrong; a number with more digits fits them anyway.
        sure = len({one.family for one in known[0] if one.digits <= known[0][0].digits}) == 1
        remedy = known[0][0].written_for(shape, own_shape) if sure else None
    families = [set[str]() if one.constant is not None else families_of(one.draws) for one in (first, second)]
    scaled = text.startswith(_DEVIATION) and len(families[0]) == 1 and families[0] == families[1]
    if first.is_table and second.is_table and text.startswith(_FIXED):
        said[1] = rearranged(first.draws[0], second.draws[0], shape) or said[1]
    cause = _cause(place[2], shape, first, second, known, families)
    if scaled:
        cause = cause or "initializer_scale_differs"
        factors = fitting_factors(first.draws, second.draws, shape, place[0], names)
        text = "; ".join([text, *(f"{one} fits" for one in factors)])
    written = remedy and f"paddle.nn.initializer.{remedy}"
    return InitialDifference(*place, text, said[0], said[1], cause, written)


def _said(one: _Tensor, known: Sequence[Initializer], shape: Sequence[int]) -> str:
    """What the values of a side are, in words."""
    if one.constant is not None:
        return f"constant {one.constant:g}"
    if one.orthogonal:
        return f"orthogonal, gain {gain}" if (gain := one.gain(shape)) else "orthogonal"
    values = described(one.draws, known)
    return f"the same with every seed: {values}" if one.is_table else values


def _cause(
    layer: str,
    shape: Sequence[int],
    first: _Tensor,
    second: _Tensor,
    known: Sequence[Sequence[Initializer]],
    families: Sequence[set[str]],
) -> str | None:
    """The id of the mistake that turns the reference's initialiser into the port's; None where the draws leave it open.

    Families differ where none has the shape of both sides' values, or none with numbers that fit.
    """
    wanted, found = known
    if _is_paddle_default(layer, shape, second, {one.name for one in found}):
        return "initializer_left_at_paddle_default"
    if first.constant is not None or second.constant is not None:
        if first.constant is not None and second.constant is not None:
            return "initial_constant_differs"
        return "initial_value_random" if first.constant is not None else "initial_value_constant"
    if first.orthogonal != second.orthogonal:
        return "initializer_family_differs"
    if first.orthogonal and first.gain(shape) != second.gain(shape):
        return "initializer_scale_differs"
    if first.is_table or second.is_table:
        kinds = {(True, True): "initial_table_differs", (True, False): "initial_value_random"}
        return kinds.get((first.is_table, second.is_table), "initial_value_constant")
    fitted = [{one.family for one in side} for side in known]
    differ = any(all(both) and not both[0] & both[1] for both in (families, fitted))
    apart = "initializer_family_differs" if differ else None
    if not wanted or not found:
        return apart
    one, other = wanted[0], found[0]
    if not _scaled_alike(first, second):
        return apart if one.family != other.family else None
    if one.name != other.name and _without_fan(one.name) == _without_fan(other.name):
        return "initializer_fan_exchanged"
    cut = {one.family, other.family} == {"normal", "truncated normal"}
    if cut and math.isclose(one.scale, other.scale, rel_tol=0.05):
        return "initializer_truncation_differs"
    return "initializer_scale_differs" if cut or one.family == other.family else apart


def _scaled_alike(first: _Tensor, second: _Tensor) -> bool:
    """Whether the port's values may be the reference's times a factor, so that nothing else of them differs.

    What is not drawn around 0 comes from code of the model's own, of which a factor says nothing.
    """
    samples = [one.draws.astype(np.float64).ravel() for one in (first, second)]
    if any(abs(one.mean()) > _CENTRED * one.std() / math.sqrt(one.size) for one in samples):
        return False
    sizes = [float(np.sqrt(np.mean(np.square(one)))) for one in samples]
    return not all(sizes) or _two_samples(samples[0] / sizes[0], samples[1] / sizes[1]) > ERROR_RATE


def _without_fan(name: str) -> str:
    return name.replace("fan_in", "fan").replace("fan_out", "fan")


def _is_paddle_default(layer: str, shape: Sequence[int], port: _Tensor, names: set[str]) -> bool:
    """Whether the values are what paddle gives a layer of this class that is told nothing."""
    if len(shape) < 2:
        return port.constant == 0.0 and layer.startswith(("Linear", "Conv"))
    if layer.startswith("Conv"):
        return "Kaiming normal by fan_in" in names
    return layer.startswith(("Linear", "Embedding")) and "Xavier uniform" in names
