"""The reference's images under examination: the steps that make them run again with something about them changed.

The images are those that a step, a chain of steps or the dataset as a whole makes; the order and the labels of samples
are examined in `samples`.
"""

import contextlib
import dataclasses
import functools
import importlib
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.causes.component import REDUCTION, Component, explain, is_refuted
from twinalign.causes.registry import cause
from twinalign.patching import replaced
from twinalign.replay.data_pipeline import STAGE, as_array, as_given, sample_arrays, steps_of
from twinalign.verdict.array_difference import ROUNDED_SAMPLE, distance, root_mean_square

Change = Callable[[np.ndarray], np.ndarray]
Given = Mapping[str, Any]
"""Arguments of a function of Pillow by name; the image is `self` in methods."""
Constants = tuple[np.ndarray, np.ndarray]
"""Mean and deviation of each channel."""
_TIES = 0.06
_MOST_IMAGES = 6


@dataclasses.dataclass
class Chain:
    """The steps that make one image, and the image on both sides.

    Attributes:
        steps: their names and functions.
        given: what the first of them is given.
        port_arguments, port_names: what the port's steps are told and called, where that is known.
    """

    steps: list[tuple[str, Callable[[Any], Any]]]
    reference: np.ndarray
    port: np.ndarray
    given: Any = None
    port_arguments: Mapping[str, str] = dataclasses.field(default_factory=dict)
    port_names: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class ImageCall:
    """A function of Pillow, which both frameworks' image operations come down to, that does something else.

    Its `function` is that of a module, or of a class as in `PIL.Image:Image.crop`; `replacement` gets the original and
    the arguments.
    """

    function: str
    replacement: Callable[..., Any]

    @contextlib.contextmanager
    def made(self) -> Iterator[None]:
        place, _, name = self.function.rpartition(".")
        module, _, kind = place.partition(":")
        owner = importlib.import_module(module)
        owner = getattr(owner, kind) if kind else owner
        original = getattr(owner, name)
        inside = False

        @functools.wraps(original)
        def call(*arguments: Any, **keywords: Any) -> Any:
            nonlocal inside
            if inside:  # what the replacement calls is Pillow's own
                return original(*arguments, **keywords)
            inside = True
            try:
                return self.replacement(original, *arguments, **keywords)
            finally:
                inside = False

        with replaced(owner, name, call):
            yield


def called(function: str, replacement: Callable[..., Any]) -> tuple[ImageCall]:
    """`ImageSubject.calls` with a function of Pillow that does something else."""
    return (ImageCall(function, replacement),)


def told(function: str, argument: str, other: Any) -> tuple[ImageCall]:
    """The same with a function that is given another argument: a value, or what `other` makes of all arguments."""

    def call(original: Callable, *arguments: Any, **named: Any) -> Any:
        given = inspect.signature(original).bind(*arguments, **named).arguments
        return original(**{**given, argument: other(given) if callable(other) else other})

    return called(function, call)


CONVERT, CROP, FILTER, FLIP, RESIZE = (
    f"PIL.Image:Image.{name}" for name in ("convert", "crop", "filter", "transpose", "resize")
)
SOLARIZE, ENHANCE = "PIL.ImageOps.solarize", "PIL.ImageEnhance:_Enhance.enhance"
PARTS = {"Brightness": "brightness", "Contrast": "contrast", "Color": "saturation", "Sharpness": "sharpness"}
"""Pillow's enhancers and what they change."""


def of_part(part: str, change: Callable[[Callable, Any, float], Any]) -> Callable[..., Any]:
    """What Pillow's enhancer of this kind does instead."""

    def enhance(original: Callable, enhancer: Any, factor: float) -> Any:
        if type(enhancer).__name__ != part:
            return original(enhancer, factor)
        return change(original, enhancer, factor)

    return enhance


def picture(values: np.ndarray) -> Any:
    """Values as a Pillow image."""
    from PIL import Image

    return Image.fromarray(values.clip(0, 255).astype(np.uint8))


class ImageSubject(Component):
    """What causes in the making of images are asked about.

    Attributes:
        port, reference, floors: number of the image → its values.
        chains: for each image the steps that make it, once more in `names`; no steps where the samples themselves are
            all that is known.
        edit: makes the steps of a chain other ones; None leaves them.
        calls: functions of Pillow that do something else.
        change: what is done to the result.
    """

    def __init__(self, backend: Any, chains: Sequence[Chain]) -> None:
        self.backend, self.chains = backend, list(chains)
        self.port = {str(i): np.asarray(chain.port, dtype=np.float64) for i, chain in enumerate(chains)}
        self.reference = {str(i): np.asarray(chain.reference, dtype=np.float64) for i, chain in enumerate(chains)}
        whole = all(image.dtype.kind in "biu" for chain in chains for image in (chain.reference, chain.port))
        self.floors = {key: self._floor(key, whole) for key in self.reference}
        self.edit: Callable[[Chain], list[tuple[str, Callable[[Any], Any]]]] | None = None
        self.calls: tuple[ImageCall, ...] = ()
        self.change: Change | None = None

    def run(self) -> dict[str, np.ndarray]:
        found: dict[str, np.ndarray] = {}
        with contextlib.ExitStack() as stack:
            for call in self.calls:
                stack.enter_context(call.made())
            for number, chain in enumerate(self.chains):
                value = _made(self.edit(chain) if self.edit else chain.steps, chain.given)
                image = np.asarray(as_array(self.backend, value), dtype=np.float64)
                found[str(number)] = self.change(image) if self.change else image
                if self.impatient and is_refuted(self, {str(number): found[str(number)]}):
                    break
        return found

    def _floor(self, key: str, whole: bool) -> float:
        one, other = self.reference[key], self.port[key]
        if whole:
            # Values that lie between two whole numbers may be rounded to either; that must stay far below what differs.
            difference = distance(one, other)
            return min(_TIES, REDUCTION * difference) if np.isfinite(difference) else _TIES
        return ROUNDED_SAMPLE * max(root_mean_square(one), root_mean_square(other))

    @property
    def names(self) -> list[str]:
        """Names of the first chain's steps."""
        return [name for name, _ in self.chains[0].steps]

    @functools.cached_property
    def known_constants(self) -> Constants | None:
        """The reference's mean and deviation for each channel, where its steps tell them; None where they do not."""
        stated = next((s for _, function in self.chains[0].steps if (s := _stated_constants(function))), None)
        return stated or self._measured_constants()

    @functools.cached_property
    def constants(self) -> list[Constants]:
        """The reference's mean and deviation; where they are not known, usual ones as guesses.

        A guess that is alike in all channels is none: what it seems to explain, another one explains as well, while
        three channels with numbers of their own are not reproduced by chance.
        """
        if self.known_constants is not None:
            return [self.known_constants]
        return [(mean, deviation) for mean, deviation in USUAL_CONSTANTS if np.ptp(mean) or np.ptp(deviation)]

    def _measured_constants(self) -> Constants | None:
        """From pixels in 0 … 255 to the reference's result, channel by channel, where that is a line."""
        given, result = self.chains[0].given, next(iter(self.reference.values()))
        if given is None or result.ndim != 3:
            return None
        pixels = np.asarray(as_array(self.backend, given), dtype=np.float64)
        pixels = pixels.transpose(2, 0, 1) if pixels.ndim == 3 and pixels.shape[-1] == result.shape[0] else pixels
        if pixels.shape != result.shape:
            return None
        scale = 255.0 if pixels.max(initial=0.0) > 1.5 else 1.0
        return constants_between(pixels.reshape(len(pixels), -1) / scale, result.reshape(len(result), -1))


def lines_between(ones: np.ndarray, others: np.ndarray) -> list[tuple[float, float]] | None:
    """Slope and start of the line that each row of `others` is of a row of `ones`; None where one is no line."""
    found = []
    for one, other in zip(ones, others, strict=True):
        if not np.ptp(one) or not np.isfinite(other).all():
            return None
        slope, start = np.polyfit(one, other, 1)
        if root_mean_square(slope * one + start - other) > ROUNDED_SAMPLE * root_mean_square(other):
            return None
        found.append((float(slope), float(start)))
    return found


def constants_between(ones: np.ndarray, others: np.ndarray) -> Constants | None:
    """Mean and deviation by which each row of `ones` becomes that of `others`; None where no numbers do that."""
    lines = lines_between(ones, others)
    if lines is None or not all(slope for slope, _ in lines):
        return None
    return np.array([-start / slope for slope, start in lines]), np.array([1.0 / slope for slope, _ in lines])


def _stated_constants(step: Any) -> Constants | None:
    """Mean and deviation that a step has as attributes, as torchvision's Normalize does."""
    try:
        mean, deviation = (np.asarray(getattr(step, name), dtype=np.float64) for name in ("mean", "std"))
    except (AttributeError, TypeError, ValueError):
        return None
    return (mean, deviation) if mean.ndim == 1 and mean.shape == deviation.shape and deviation.all() else None


USUAL_CONSTANTS: list[Constants] = [
    (np.array(mean), np.array(deviation))
    for mean, deviation in (
        ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
        ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
        ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
        ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
        ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    )
]
"""Mean and deviation of ImageNet, of the range -1 … 1, of none, of CLIP, of CIFAR-10 (two of its deviations)."""


image_cause = functools.partial(cause, "data", ImageSubject)
"""Decorator of causes in the making of images."""


def explain_step(
    worker: Any,
    split: str,
    name: str,
    places: Sequence[str],
    reference: str,
    port: str,
    arguments: Mapping[str, Mapping[str, str]],
) -> dict[str, Any]:
    """Why a step of the port returns something else for the same input.

    `places` are `SAMPLE.IMAGE.STEP` of each result that differs, `reference` and `port` files of `record_steps` (the
    port's on the reference's results), `arguments` those of the port's step by place.
    """
    with np.load(reference, allow_pickle=False) as one, np.load(port, allow_pickle=False) as other:
        chains = []
        for place in [place for place in places if place in one and place in other][:_MOST_IMAGES]:
            key, _, number = place.rpartition(".")
            steps = _steps(worker, split, key)
            before = f"{key}.{int(number) - 1}"
            given = as_given(worker, one[before], _made(steps[: int(number)])) if before in one else None
            chains.append(Chain([steps[int(number)]], one[place], other[place], given, arguments[place]))
    return _explained(worker, chains)


def explain_chain(
    worker: Any, split: str, keys: Sequence[str], reference: str, port: str, names: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Why other steps give another image.

    `keys` are `SAMPLE.IMAGE` of each image whose steps have other names in the port, `names` those names by key,
    `reference` and `port` files of `record_steps`.
    """
    chains = []
    with np.load(reference, allow_pickle=False) as one, np.load(port, allow_pickle=False) as other:
        for key in keys[:_MOST_IMAGES]:
            steps = _steps(worker, split, key)
            ours, theirs = f"{key}.{len(steps) - 1}", f"{key}.{len(names[key]) - 1}"
            if ours in one and theirs in other:
                chains.append(Chain(steps, one[ours], other[theirs], port_names=names[key]))
    return _explained(worker, chains)


def explain_samples(
    worker: Any, split: str, name: str, reference: str, port: str, indices: Sequence[int]
) -> dict[str, Any]:
    """Why samples differ although no step is known to be wrong.

    `name` is that of the value that differs, `reference` and `port` are files of it by number of the sample.
    """

    def reader(index: int) -> Callable[[Any], np.ndarray]:
        # No partial: the number of the sample is no argument that a port may get wrong.
        def read(nothing: Any) -> np.ndarray:
            samples = iter(worker.fresh_case(STAGE).dataset(worker.framework, split))
            return sample_arrays(worker.backend, next(itertools.islice(samples, index, None)))[name]

        return read

    with np.load(reference, allow_pickle=False) as one, np.load(port, allow_pickle=False) as other:
        chains = [
            Chain([("sample", reader(index))], one[str(index)], other[str(index)])
            for index in indices
            if str(index) in one and str(index) in other
        ]
    return _explained(worker, chains)


def _explained(worker: Any, chains: Sequence[Chain]) -> dict[str, Any]:
    return explain(ImageSubject(worker.backend, chains), "data") if chains else {"explanation": None}


def _steps(worker: Any, split: str, key: str) -> list[tuple[str, Callable[[Any], Any]]]:
    index, _, image = key.partition(".")
    return list(steps_of(worker, split, int(index))[image])


def _made(steps: Sequence[tuple[str, Callable[[Any], Any]]], value: Any = None) -> Any:
    for _, function in steps:
        value = function(value)
    return value
