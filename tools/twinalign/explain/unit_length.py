"""Faults of normalisation to unit length and of cosine similarity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from twinalign.explain.calls import Call, Change, Site
from twinalign.explain.registry import register
from twinalign.explain.rewrite import Constant, Rewrite, any_of, changing
from twinalign.explain.subject import LayerSubject

EPSILONS = (1e-12, 1e-8, 1e-6, 1e-5, 1e-10, 1e-7, 1e-4, 1e-3, 0.0)


@register
class NormalizeEpsilon(Constant):
    """The bound from below of the length, also where it is written as a clamp."""

    id = "normalize_epsilon"
    phase = "forward"
    text = "the smallest length that normalisation to unit length divides by has another value"
    functions = ("normalize", "cosine_similarity", "clamp", "clamp_min")
    argument = "eps"
    default = 1e-12
    words = ("epsilon", "eps")
    usual = EPSILONS

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """`eps`, or the small bound of a clamp."""
        if not site.name.startswith("clamp"):
            yield from super().changes(site, subject)
        elif isinstance(current := site.get("min"), float) and 0.0 < current < 1e-2:
            for value in subject.candidates(self.words, self.usual, current):
                yield f"{value:g} in place of {current:g}", changing(min=value)


@register
class NormalizeEpsilonForm(Rewrite):
    """x / (length + eps) and x / sqrt(length² + eps) in place of x / max(length, eps)."""

    id = "normalize_epsilon_form"
    phase = "forward"
    text = "epsilon enters the normalisation to unit length in another way"
    functions = ("normalize",)

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Added to the length or under the root."""
        for value in dict.fromkeys((site.get("eps", 1e-12), *EPSILONS[:-1])):
            yield f"{value:g} added to the length", _by_length(value, under_root=False)
            yield f"{value:g} added under the root", _by_length(value, under_root=True)


def _by_length(epsilon: float, under_root: bool) -> Change:
    def change(call: Call) -> Any:
        squares = call["input"].square().sum(call.get("dim", 1), keepdim=True)
        return call["input"] / ((squares + epsilon).sqrt() if under_root else squares.sqrt() + epsilon)

    return change


@register
class CosineEpsilonForm(Rewrite):
    """Paddle bounds the product of both lengths, torch each length."""

    id = "cosine_epsilon_form"
    phase = "forward"
    text = "cosine similarity bounds the product of the lengths by epsilon, not each length"
    difference = "cosine_similarity_eps"
    functions = ("cosine_similarity",)
    ways = any_of({"": lambda call: _product_bounded(call)})


def _product_bounded(call: Call) -> Any:
    dim, one, two = call.get("dim", 1), call["x1"], call["x2"]
    lengths = one.square().sum(dim).sqrt() * two.square().sum(dim).sqrt()
    return (one * two).sum(dim) / lengths.clamp(min=call.get("eps", 1e-8))


@register
class NormalizeAxis(Rewrite):
    """Every other axis is tried."""

    id = "normalize_axis"
    phase = "forward"
    text = "vectors are normalised to unit length along another axis"
    functions = ("normalize", "cosine_similarity")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Each other axis."""
        rank, current = len(site.shape() or site.shape("x1")), site.get("dim", 1)
        for axis in range(rank):
            if isinstance(current, int) and axis != current % rank:
                yield f"{axis} in place of {current}", changing(dim=axis)


@register
class NormalizeMissing(Rewrite):
    """Features go on at their own length."""

    id = "normalize_missing"
    phase = "forward"
    text = "the vectors are not normalised to unit length"
    functions = ("normalize", "cosine_similarity")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """The input as it is, or the plain product."""
        if site.name == "normalize":
            yield "", lambda call: call["input"]
        else:
            yield "", lambda call: (call["x1"] * call["x2"]).sum(call.get("dim", 1))


@register
class NormalizePower(Rewrite):
    """The 1-norm, the maximum norm, or the squared length."""

    id = "normalize_power"
    phase = "forward"
    text = "the vectors are divided by another norm"
    functions = ("normalize",)
    ways = any_of(
        {
            "the 1-norm": changing(p=1.0),
            "the greatest element": changing(p=float("inf")),
            "the squared length": lambda call: call["input"] / call["input"].square().sum(call.get("dim", 1), True),
        }
    )
