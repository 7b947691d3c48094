"""Faults of axes and order: reductions, flattening, concatenation, splitting, indexing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from twinalign.explain.calls import Call, Change, Site, TensorFacts
from twinalign.explain.registry import register
from twinalign.explain.rewrite import Rewrite, any_of, changing
from twinalign.explain.subject import LayerSubject

REDUCTIONS = ("mean", "sum", "amax", "amin", "max", "min", "std", "var", "norm", "vector_norm", "logsumexp", "prod")
_MOST_ORDERS = 24


@register
class ReductionAxis(Rewrite):
    """Each other axis, and all but the first."""

    id = "reduction_axis"
    phase = "forward"
    text = "a reduction runs along another axis"
    functions = (*REDUCTIONS, "argmax")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """As many axes as there were, in every choice."""
        rank, given = len(site.shape()), site.get("dim")
        if given is None or isinstance(given, TensorFacts):
            return
        axes = tuple(given) if isinstance(given, Sequence) else (given,)
        current = tuple(sorted(axis % rank for axis in axes))
        for chosen in itertools.combinations(range(rank), len(current)):
            if chosen != current:
                value = chosen if isinstance(given, Sequence) else chosen[0]
                yield f"{list(chosen)} in place of {list(current)} ({site.name})", changing(dim=value)
        if len(current) < rank - 1:
            yield f"all but the first ({site.name})", changing(dim=tuple(range(1, rank)))


@register
class ReductionKind(Rewrite):
    """A sum for a mean, a maximum for a mean, and so on."""

    id = "reduction_kind"
    phase = "forward"
    text = "another reduction is used"
    rank = 2
    functions = REDUCTIONS

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Every other one, over the same axes."""
        for name in ("sum", "mean", "amax", "amin", "std", "var"):
            if name != site.name:
                yield f"{name} in place of {site.name}", _reduced(name)
        if site.name in ("std", "var"):
            yield f"the biased {site.name}", _reduced(site.name, unbiased=False)
            yield f"the unbiased {site.name}", _reduced(site.name, unbiased=True)


def _reduced(name: str, **options: Any) -> Change:
    def change(call: Call) -> Any:
        x, axes = call["input"], call.get("dim")
        axes = tuple(range(x.dim())) if axes is None else axes
        return getattr(x, name)(dim=axes, keepdim=call.get("keepdim", False), **options)

    return change


@register
class FlattenOrder(Rewrite):
    """Channels last for channels first, columns before rows."""

    id = "flatten_order"
    phase = "forward"
    text = "axes are in another order when they are flattened or reshaped"
    functions = ("flatten", "reshape", "view")
    rank = 1

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Every order of the axes behind the first; of three or fewer axes every order."""
        shape = site.shape()
        if not 2 <= len(shape) <= 5 or shape == site.output.shape:
            return
        tail = [(0, *order) for order in itertools.permutations(range(1, len(shape)))]
        orders = tail if len(shape) > 3 else list(itertools.permutations(range(len(shape))))
        for order in orders[:_MOST_ORDERS]:
            if order != tuple(range(len(shape))):
                yield f"{list(order)} of {list(shape)}", _permuted_before(order)


def _permuted_before(order: Sequence[int]) -> Change:
    return lambda call: call["input"].permute(*order).reshape(call.result.shape)


@register
class MergedInReverse(Rewrite):
    """Attention's heads, patches or groups put together from the last to the first."""

    id = "merged_in_reverse"
    phase = "forward"
    text = "an axis is read backwards when it is merged with another"
    functions = ("flatten", "reshape", "view")
    rank = 1

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Each axis that the call does not keep."""
        shape = site.shape()
        if shape == site.output.shape or len(shape) > 5:
            return
        for axis, size in enumerate(shape):
            if axis > 0 and size > 1:
                yield f"axis {axis} of {list(shape)}", _reversed_before(axis)


def _reversed_before(axis: int) -> Change:
    return lambda call: call["input"].flip(axis).reshape(call.result.shape)


@register
class TransposeMissing(Rewrite):
    """The memory is read in the old order: a reshape where axes should be swapped."""

    id = "reshaped_not_transposed"
    phase = "forward"
    text = "a tensor is reshaped where its axes should be swapped"
    functions = ("permute", "transpose", "movedim")
    ways = any_of({"": lambda call: call["input"].reshape(call.result.shape)})


@register
class AxesOrder(Rewrite):
    """numpy's transpose(2, 0, 1) swaps two axes in paddle, and permute lists get mixed up."""

    id = "axes_order"
    phase = "forward"
    text = "axes are permuted in another order"
    difference = "transpose_permute"
    functions = ("permute", "transpose")
    rank = 1

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Every order that gives the same shape."""
        shape, wanted = site.shape(), site.output.shape
        if len(shape) > 5:
            return
        orders = [o for o in itertools.permutations(range(len(shape))) if tuple(shape[at] for at in o) == wanted]
        for order in orders[:_MOST_ORDERS]:
            yield f"{list(order)}", _permuted(order)


def _permuted(order: Sequence[int]) -> Change:
    return lambda call: call["input"].permute(*order)


@register
class ClassTokenPosition(Rewrite):
    """Behind the patches in place of before them."""

    id = "class_token_position"
    phase = "forward"
    text = "the class token is at the other end of the sequence"
    functions = ("cat",)

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Where one of two operands is a parameter or a single token."""
        given = site.get("tensors", ())
        if len(given) == 2 and all(isinstance(item, TensorFacts) for item in given):
            dim = site.get("dim", 0)
            learned = any(item.name is not None for item in given)
            if learned or sorted(item.shape[dim] == 1 for item in given) == [False, True]:
                yield "", lambda call: call.run(tensors=list(reversed(call["tensors"])))


@register
class ConcatenationOrder(Rewrite):
    """Each other order of up to four operands; of more, backwards."""

    id = "concatenation_order"
    phase = "forward"
    text = "tensors are concatenated in another order"
    functions = ("cat", "stack", "hstack", "vstack")
    rank = 1

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Named by the order."""
        number = len(site.get("tensors", site.get("input", ())))
        if number < 2:
            return
        orders = list(itertools.permutations(range(number)))[1:] if number <= 4 else [tuple(reversed(range(number)))]
        for order in orders:
            yield f"{list(order)}", _operands_permuted(order)


def _operands_permuted(order: Sequence[int]) -> Change:
    def change(call: Call) -> Any:
        name = "tensors" if "tensors" in call.arguments else "input"
        return call.run(**{name: [call[name][at] for at in order]})

    return change


@register
class PartsOrder(Rewrite):
    """Halves of a split swapped, parts in another order."""

    id = "parts_order"
    phase = "forward"
    text = "the parts of a split tensor are taken in another order"
    functions = ("chunk", "split", "unbind", "tensor_split")
    rank = 1
    ways = any_of(
        {
            "backwards": lambda call: tuple(reversed(call.result)),
            "shifted by one": lambda call: (*call.result[1:], call.result[0]),
            "shifted back by one": lambda call: (call.result[-1], *call.result[:-1]),
        }
    )


@register
class SplitInterleaved(Rewrite):
    """Every n-th element for the n-th block."""

    id = "split_interleaved"
    phase = "forward"
    text = "a tensor is split into interleaved parts, not into blocks"
    functions = ("chunk", "split")
    ways = any_of({"": lambda call: _interleaved(call)})


def _interleaved(call: Call) -> Any:
    parts, dim = call.result, call.get("dim", 0)
    number = len(parts)
    if len({part.shape for part in parts}) != 1 or number < 2:
        raise ValueError("parts of different sizes")
    index = call.torch.arange(call["input"].shape[dim])
    return tuple(call["input"].index_select(dim, index[at::number]) for at in range(number))


@register
class TokenChosen(Rewrite):
    """The last token, the second, or the mean, for the class token."""

    id = "token_chosen"
    phase = "forward"
    text = "another element is picked out along an axis"
    functions = ("getitem", "select")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Neighbours, the last, the mean of all and of all others."""
        axis, at = _picked(site)
        if axis is None:
            return
        size = site.shape()[axis]
        for other in dict.fromkeys((size - 1, 0, at + 1, at - 1)):
            if 0 <= other < size and other != at % size:
                yield f"{other} in place of {at}", _picking(axis, other)
        yield "the mean of all", lambda call: call["input"].mean(axis)
        yield "the mean of all but the first", lambda call: call["input"].narrow(axis, 1, size - 1).mean(axis)


def _picked(site: Site) -> tuple[int | None, int]:
    """Axis and index of the one element that an indexing picks out, None for another kind of indexing."""
    if site.name == "select":
        return site.get("1", 0), site.get("2", 0)
    index = site.get("index")
    index = index if isinstance(index, tuple) else (index,)
    numbers = [axis for axis, item in enumerate(index) if isinstance(item, int) and not isinstance(item, bool)]
    plain = all(isinstance(item, (int, slice)) for item in index)
    return (numbers[0], index[numbers[0]]) if len(numbers) == 1 and plain and site.shape() else (None, 0)


def _picking(axis: int, at: int) -> Change:
    return lambda call: call["input"].select(axis, at)


@register
class SliceShifted(Rewrite):
    """The first element dropped where the last should be, or none."""

    id = "slice_shifted"
    phase = "forward"
    text = "a slice begins or ends elsewhere"
    functions = ("getitem", "narrow")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """The same length from another start."""
        if len(site.shape()) != len(site.output.shape):
            return
        for axis, (whole, part) in enumerate(zip(site.shape(), site.output.shape, strict=True)):
            if part < whole:
                for start in range(min(whole - part + 1, 8)):
                    yield f"from {start} along axis {axis}", _sliced(axis, start, part)
                yield f"the last along axis {axis}", _sliced(axis, whole - part, part)


def _sliced(axis: int, start: int, length: int) -> Change:
    return lambda call: call["input"].narrow(axis, start, length)


@register
class RollDirection(Rewrite):
    """Of shifted windows."""

    id = "roll_direction"
    phase = "forward"
    text = "a tensor is rolled the other way"
    functions = ("roll",)

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """The other sign, and the axes swapped."""
        shifts = site.get("shifts")
        opposite = tuple(-shift for shift in shifts) if isinstance(shifts, Sequence) else -shifts
        yield "", changing(shifts=opposite)
        if isinstance(site.get("dims"), Sequence):
            yield "along the axes in the other order", changing(dims=tuple(reversed(site.get("dims"))))


@register
class AxisWrong(Rewrite):
    """Of functions that keep the shape whatever the axis."""

    id = "axis_wrong"
    phase = "forward"
    text = "a function runs along another axis"
    difference = "cumsum_axis_none"
    functions = ("cumsum", "cumprod", "flip", "sort", "chunk", "split", "unbind", "stack", "cat", "glu", "gather")
    rank = 2

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Each other axis."""
        name = "dims" if site.name == "flip" else "dim"
        current = site.get(name)
        axis = current[0] if isinstance(current, Sequence) and len(current) == 1 else current
        if isinstance(axis, int):
            rank = len(site.shape() or site.output.shape)
            for other in range(rank):
                if other != axis % rank:
                    yield f"{other} in place of {axis} ({site.name})", changing(**{name: other})
