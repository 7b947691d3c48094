"""Samples that come in another order, with other labels, or made differently from their images."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from twinalign.case.samples import first_samples
from twinalign.planted_faults.case_contents import CaseContents
from twinalign.planted_faults.catalogue import Registration, in_case
from twinalign.planted_faults.fault_sites import CaseSite, Original, handed_to, through
from twinalign.planted_faults.faults.inputs import ANY_SPLIT
from twinalign.planted_faults.where_to_plant import Find, component


def _is_image(array: Any) -> bool:
    return array.dtype.kind == "f" and array.ndim >= 3 and array.shape[-3] == 3


def _split_with(fits: Callable[[np.ndarray], bool]) -> Find:
    def find(contents: CaseContents) -> str | None:
        splits = contents.samples.items()
        found = (split for split, parts in splits if any(fits(array) for array in parts.values()))
        return next((f"dataset.{split}" for split in found), None)

    return find


def _changed(value: Any, fits: Callable[[np.ndarray], bool], change: Callable[[np.ndarray], np.ndarray]) -> Any:
    """A sample whose fitting arrays are changed, tensors turned into arrays on the way."""
    if isinstance(value, Mapping):
        return {key: _changed(part, fits, change) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(_changed(part, fits, change) for part in value)
    array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
    return np.ascontiguousarray(change(array)).astype(array.dtype) if fits(array) else value


def _samples(site: CaseSite, fits: Callable[[np.ndarray], bool], change: Callable[[np.ndarray], np.ndarray]) -> None:
    def run(original: Original, framework: str, split: str) -> Iterator[Any]:
        for sample in original(framework, split):
            yield _changed(sample, fits, change)

    site.around("dataset", run)


def _each(fits: Callable[[np.ndarray], bool], fault: str, *causes: str) -> Registration:
    """A fault whose function changes those arrays of every sample that fit."""
    how = handed_to(_samples, fits)
    return in_case("data", _split_with(fits), *causes, also=ANY_SPLIT, id=fault, how=how)


_each(_is_image, "samples_bgr", "channels_reversed").add(
    "Samples come with blue first", lambda image: image[..., ::-1, :, :]
)
_each(_is_image, "samples_not_scaled", "scale_255").add("Samples are 255 times too large", lambda image: image * 255)
_each(_is_image, "samples_transposed", "axes_transposed").add(
    "Height and width of samples are exchanged", lambda image: image.swapaxes(-1, -2)
)
_each(_is_image, "samples_flipped", "step_doubled", "flip_extra").add(
    "Samples are flipped once more", lambda image: image[..., ::-1]
)


_MEAN, _STD = (np.array(v)[:, None, None] for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


_each(_is_image, "samples_normalised_twice", "normalized_twice", "step_doubled").add(
    "Samples are normalised twice", lambda image: (image - _MEAN) / _STD
)
_each(_is_image, "samples_normalised_before_scaling", "normalize_before_scaling", "step_order").add(
    "Samples are normalised before they are scaled to 1",
    lambda image: ((image * _STD + _MEAN) * 255 - _MEAN) / _STD / 255,
)
_each(_is_image, "samples_not_normalised", "step_missing", "normalize_missing").add(
    "Samples are not normalised", lambda image: image * _STD + _MEAN
)


def _is_label(array: np.ndarray) -> bool:
    return array.dtype.kind in "iu" and array.ndim <= 1


_each(_is_label, "labels_from_one", "labels_shifted").add("Labels count from one", lambda label: label + 1)


_ANY_DATA = component("dataset.train", lambda contents: "train" in contents.samples, needs="data")


def _reordered(site: CaseSite, order: Callable[[Iterable[Any]], Iterable[Any]]) -> None:
    site.around("dataset", lambda original, framework, split: order(original(framework, split)))


def _order(find: Find, *causes: str, fault: str = "") -> Registration:
    """A fault whose function takes the samples and gives those that come instead."""
    return in_case("data", find, *causes, also=ANY_SPLIT, id=fault, how=handed_to(_reordered))


_order(_ANY_DATA, "order_shifted", "sampler_order", fault="first_sample_lost").add(
    "The first sample is left out", lambda samples: itertools.islice(iter(samples), 1, None)
)


@_order(_ANY_DATA, "sample_repeated", "sampler_order")
def first_sample_repeated(samples: Iterable[Any]) -> Iterator[Any]:
    """The first sample comes twice."""
    for index, sample in enumerate(samples):
        if index == 0:
            yield sample
        yield sample


@_order(_ANY_DATA, "order_swapped", "sampler_order")
def neighbours_exchanged(samples: Iterable[Any]) -> Iterator[Any]:
    """Every two samples change places."""
    iterator = iter(samples)
    for first in iterator:
        yield from [*itertools.islice(iterator, 1), first]


def _ends_early(contents: CaseContents) -> bool:
    """Whether the recorded samples reach the end of a split."""
    limit = contents.case.data_samples
    return len(list(first_samples(contents.case.dataset("paddle", "val"), limit + 1))) <= limit


_TO_THE_END = component("dataset.val", lambda s: "val" in s.samples and _ends_early(s), needs="data")


@_order(_TO_THE_END, "drop_last", "sample_missing")
def last_sample_dropped(samples: Iterable[Any]) -> Iterator[Any]:
    """The last, incomplete batch is dropped."""
    iterator = iter(samples)
    before = list(itertools.islice(iterator, 1))
    for sample in iterator:
        yield from before
        before = [sample]


_order(_TO_THE_END, "order_reversed", fault="samples_from_the_end").add(
    "The samples come from the last to the first", lambda samples: reversed(list(samples))
)
_order(_ANY_DATA, "sampler_shard", fault="every_second_sample").add(
    "Only every second sample comes, as of one rank of two", lambda samples: itertools.islice(iter(samples), 0, None, 2)
)
_each(_is_label, "classes_renumbered", "classes_renumbered").add(
    "Every two classes have each other's number", lambda label: label ^ 1
)


def _is_lone_label(array: Any) -> bool:
    return bool(_is_label(array) and array.ndim == 0)


def labels_of(contents: CaseContents, split: str) -> list[int]:
    """The labels of a split's first samples, where a sample is a tuple with one label in it."""
    samples = list(first_samples(contents.case.dataset("paddle", split), contents.case.data_samples))
    if not all(isinstance(sample, tuple) for sample in samples):
        return []
    return [int(value) for sample in samples for value in sample if _is_lone_label(np.asarray(value))]


def _labels_in_no_order(contents: CaseContents) -> str | None:
    """The first split whose labels do not go up by one from sample to sample, as if each were one too high."""
    for split in contents.samples:
        steps = {later - former for former, later in itertools.pairwise(labels_of(contents, split))}
        if steps - {1}:
            return f"dataset.{split}"
    return None


@in_case("data", _labels_in_no_order, "labels_of_neighbours", also=ANY_SPLIT)
@through(CaseSite.around, "dataset")
def labels_of_the_sample_after(site: CaseSite, original: Original, framework: str, split: str) -> Iterator[Any]:
    """Samples have the label of the sample after them."""
    samples = list(original(framework, split))
    for sample, following in zip(samples, [*samples[1:], *samples[:1]], strict=True):
        yield tuple(
            late if _is_lone_label(np.asarray(late)) else own for own, late in zip(sample, following, strict=True)
        )


_each(_is_image, "samples_reshaped_not_transposed", "layout_reinterpreted").add(
    "Samples with the colours last are reshaped, not transposed, to have them first",
    lambda image: np.moveaxis(image, -3, -1).reshape(image.shape),
)
_each(_is_image, "samples_divided_by_256", "scale_255").add(
    "Pixels are divided by 256, not by 255", lambda image: ((image * _STD + _MEAN) * 255 / 256 - _MEAN) / _STD
)
