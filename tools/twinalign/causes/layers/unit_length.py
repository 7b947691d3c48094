"""Faults of normalisation to unit length and of cosine similarity."""

from typing import Any

from twinalign.backends.torch.reference_only.operations import FunctionCall, Site
from twinalign.causes.layers.changed_calls import Changes, as_change, changing, forward, other_values
from twinalign.causes.layers.normalisation import is_small
from twinalign.causes.layers.subject import LayerSubject

_LENGTHS = (1e-12, 1e-8, 1e-6, 1e-5, 1e-10, 1e-7, 1e-4, 1e-3, 0.0)


@forward("normalize", "cosine_similarity", "clamp", "clamp_min", float32_constants=True)
def normalize_epsilon(site: Site, subject: LayerSubject) -> Changes:
    """The smallest length that normalisation to unit length divides by has another value."""
    # The bound may also be written as a clamp.
    argument = "min" if site.name.startswith("clamp") else "eps"
    if argument == "eps" or is_small(site.get("min")):
        yield from other_values(site, subject, argument, default=1e-12, words=("epsilon", "eps"), usual=_LENGTHS)


@forward("normalize")
def normalize_epsilon_form(site: Site) -> Changes:
    """Epsilon enters the normalisation to unit length in another way."""
    # x / (length + eps) and x / sqrt(length² + eps) in place of x / max(length, eps).
    for value in dict.fromkeys((site.get("eps", 1e-12), *_LENGTHS[:-1])):
        yield f"{value:g} added to the length", _by_length(value, under_root=False)
        yield f"{value:g} added under the root", _by_length(value, under_root=True)


@as_change
def _by_length(call: FunctionCall, epsilon: float, under_root: bool) -> Any:
    squares = call["input"].square().sum(call.get("dim", 1), keepdim=True)
    return call["input"] / ((squares + epsilon).sqrt() if under_root else squares.sqrt() + epsilon)


@forward("cosine_similarity", difference="cosine_similarity_eps")
def cosine_epsilon_form(call: FunctionCall) -> Any:
    """Cosine similarity bounds the product of the lengths by epsilon, not each length."""
    # Paddle bounds the product of both lengths, torch each length.
    dim, one, two = call.get("dim", 1), call["x1"], call["x2"]
    lengths = one.square().sum(dim).sqrt() * two.square().sum(dim).sqrt()
    return (one * two).sum(dim) / lengths.clamp(min=call.get("eps", 1e-8))


@forward("normalize", "cosine_similarity")
def normalize_axis(site: Site) -> Changes:
    """Vectors are normalised to unit length along another axis."""
    rank, current = len(site.shape() or site.shape("x1")), site.get("dim", 1)
    for axis in range(rank):
        if isinstance(current, int) and axis != current % rank:
            yield f"{axis} in place of {current}", changing(dim=axis)


@forward("normalize", "cosine_similarity")
def normalize_missing(site: Site) -> Changes:
    """The vectors are not normalised to unit length."""
    if site.name == "normalize":
        yield "", lambda call: call["input"]
    else:
        yield "", lambda call: (call["x1"] * call["x2"]).sum(call.get("dim", 1))


@forward("normalize")
def normalize_power() -> Changes:
    """The vectors are divided by another norm."""
    yield "the 1-norm", changing(p=1.0)
    yield "the greatest element", changing(p=float("inf"))
    yield "the squared length", lambda call: call["input"] / call["input"].square().sum(call.get("dim", 1), True)
