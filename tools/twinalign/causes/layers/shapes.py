"""Faults of axes and order: reductions, flattening, concatenation, splitting, indexing."""

import itertools
from collections.abc import Sequence
from typing import Any

from twinalign.backends.torch.reference_only.operations import Change, FunctionCall, Site, TensorFacts
from twinalign.causes.layers.changed_calls import Changes, as_change, changing, enter_edits, forward, of_input
from twinalign.causes.layers.subject import LayerSubject
from twinalign.causes.layers.ways import made, other_axis

REDUCTIONS = ("mean", "sum", "amax", "amin", "max", "min", "std", "var", "norm", "vector_norm", "logsumexp", "prod")
_ALONG_AN_AXIS = ("cumsum", "cumprod", "flip", "sort", "chunk", "split", "unbind", "stack", "cat", "glu", "gather")
_MOST_ORDERS = 24


@forward(*REDUCTIONS, "argmax")
def reduction_axis(site: Site) -> Changes:
    """A reduction runs along another axis."""
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


@forward(*REDUCTIONS, rank=2)
def reduction_kind(site: Site) -> Changes:
    """Another reduction is used."""
    for name in ("sum", "mean", "amax", "amin", "std", "var"):
        if name != site.name:
            yield f"{name} in place of {site.name}", _reduced(name)
    if site.name in ("std", "var"):
        yield f"the biased {site.name}", _reduced(site.name, unbiased=False)
        yield f"the unbiased {site.name}", _reduced(site.name, unbiased=True)


@as_change
def _reduced(call: FunctionCall, name: str, **options: Any) -> Any:
    x, axes = call["input"], call.get("dim")
    if name in ("amax", "amin") and bool(((x == 0) | (x == 1)).all()):
        raise ValueError("the largest of a mask is one whatever it holds: its sum is left out, not taken for that")
    axes = tuple(range(x.dim())) if axes is None else axes
    return getattr(x, name)(dim=axes, keepdim=call.get("keepdim", False), **options)


@forward("flatten", "reshape", "view", rank=1)
def flatten_order(site: Site) -> Changes:
    """Axes are in another order when they are flattened or reshaped."""
    # For example channels last for channels first, or columns before rows.
    shape = site.shape()
    if not 2 <= len(shape) <= 5 or shape == site.output.shape:
        return
    tail = [(0, *order) for order in itertools.permutations(range(1, len(shape)))]
    orders = tail if len(shape) > 3 else list(itertools.permutations(range(len(shape))))
    for order in orders[:_MOST_ORDERS]:
        if order != tuple(range(len(shape))):
            yield f"{list(order)} of {list(shape)}", _reshaped_after("permute", *order)


def _reshaped_after(method: str, *arguments: int) -> Change:
    return lambda call: getattr(call["input"], method)(*arguments).reshape(call.result.shape)


def _orders(site: Site) -> list[tuple[int, ...]]:
    """Orders of the axes that give the shape that the call gives."""
    shape = site.shape()
    orders = itertools.permutations(range(len(shape))) if len(shape) <= 5 else ()
    return [order for order in orders if tuple(shape[at] for at in order) == site.output.shape][:_MOST_ORDERS]


def _with_a_token(site: Site) -> bool:
    given = site.get("tensors", ())
    facts = [item for item in given if isinstance(item, TensorFacts)]
    return len(given) == len(facts) == 2 and any(item.name is not None for item in facts)


def _other_orders(site: Site, subject: LayerSubject) -> Changes:
    name = "tensors" if "tensors" in site.arguments else "input"
    number = len(site.get(name, ()))
    orders = itertools.permutations(range(number)) if number <= 4 else [tuple(reversed(range(number)))]
    for order in orders:
        if order != tuple(range(number)):
            yield f"{list(order)}", lambda call, order=order: call.run(**{name: [call[name][at] for at in order]})


@forward("chunk", "split")
def split_interleaved(call: FunctionCall) -> Any:
    """A tensor is split into interleaved parts, not into blocks."""
    parts, dim = call.result, call.get("dim", 0)
    number = len(parts)
    if len({part.shape for part in parts}) != 1 or number < 2:
        raise ValueError("parts of different sizes")
    index = call.torch.arange(call["input"].shape[dim])
    return tuple(call["input"].index_select(dim, index[at::number]) for at in range(number))


@forward("getitem", "select")
def token_chosen(site: Site) -> Changes:
    """Another element is picked out along an axis."""
    axis, at = _picked(site)
    if axis is None:
        return
    size = site.shape()[axis]
    for other in dict.fromkeys((size - 1, 0, at + 1, at - 1)):
        if 0 <= other < size and other != at % size:
            yield f"{other} in place of {at}", of_input("select", axis, other)
    yield "the mean of all", of_input("mean", axis)
    yield "the mean of all but the first", lambda call: call["input"].narrow(axis, 1, size - 1).mean(axis)


def _picked(site: Site) -> tuple[int | None, int]:
    """Axis and index of the one element that an indexing picks out, None for another kind of indexing."""
    if site.name == "select":
        return site.get("dim", 0), site.get("index", 0)
    index = site.get("index")
    index = index if isinstance(index, tuple) else (index,)
    numbers = [axis for axis, item in enumerate(index) if isinstance(item, int) and not isinstance(item, bool)]
    plain = all(isinstance(item, (int, slice)) for item in index)
    return (numbers[0], index[numbers[0]]) if len(numbers) == 1 and plain and site.shape() else (None, 0)


@forward("getitem", "narrow")
def slice_shifted(site: Site) -> Changes:
    """A slice begins or ends elsewhere."""
    if len(site.shape()) != len(site.output.shape):
        return
    for axis, (whole, part) in enumerate(zip(site.shape(), site.output.shape, strict=True)):
        if part < whole:
            for start in range(min(whole - part + 1, 8)):
                yield f"from {start} along axis {axis}", of_input("narrow", axis, start, part)
            yield f"the last {part} along axis {axis}", of_input("narrow", axis, whole - part, part)


enter_edits("forward", (
    ("axis_wrong", "a function runs along another axis", _ALONG_AN_AXIS,
     other_axis(lambda rank: None, named=True), {"difference": "cumsum_axis_none", "rank": 2}),
    ("concatenation_order", "tensors are concatenated in another order", ("cat", "stack", "hstack", "vstack"),
     _other_orders, {"rank": 1}),
    # The memory is then read in the old order.
    ("reshaped_not_transposed", "a tensor is reshaped where its axes should be swapped",
     ("permute", "transpose", "movedim"),  # where it keeps its shape, nothing is done to the tensor at all
     made({"": lambda c: c["input"].reshape(c.result.shape)}, lambda site: site.shape() != site.output.shape), {}),
    ("parts_order", "the parts of a split tensor are taken in another order",
     ("chunk", "split", "unbind", "tensor_split"),
     made({"backwards": lambda call: tuple(reversed(call.result)),
           "shifted by one": lambda call: (*call.result[1:], call.result[0]),
           "shifted back by one": lambda call: (call.result[-1], *call.result[:-1])}), {"rank": 1}),
    # Without an axis paddle's cumsum flattens.
    ("cumulative_flattened", "a cumulative sum runs over the flattened tensor", ("cumsum", "cumprod", "logcumsumexp"),
     made({"": lambda call: call.run(input=call["input"].flatten(), dim=0),
           "back in its shape": lambda call: call.run(input=call["input"].flatten(), dim=0).view_as(call["input"])}),
     {"difference": "cumsum_axis_none"}),
    ("class_token_position", "the class token is at the other end of the sequence", ("cat",),
     made({"": lambda call: call.run(tensors=list(reversed(call["tensors"])))}, _with_a_token), {}),
    ("roll_direction", "a tensor is rolled the other way", ("roll",),
     made({"": lambda call: call.run(shifts=(-call.torch.as_tensor(call["shifts"])).tolist()),
           "along the axes in the other order": lambda call: call.run(dims=tuple(reversed(call["dims"])))}), {}),
    # For example heads, patches or groups put together from the last to the first.
    ("merged_in_reverse", "an axis is read backwards when it is merged with another", ("flatten", "reshape", "view"),
     lambda site, subject: [(f"axis {axis} of {list(site.shape())}", _reshaped_after("flip", axis))
                            for axis, size in enumerate(site.shape()) if axis > 0 and size > 1]
     if site.shape() != site.output.shape and len(site.shape()) <= 5 else (), {"rank": 1}),
    # numpy's transpose(2, 0, 1) swaps two axes in paddle, and permute lists get mixed up.
    ("axes_order", "axes are permuted in another order", ("permute", "transpose"),
     lambda site, subject: [(f"{list(order)}", of_input("permute", *order)) for order in _orders(site)],
     {"difference": "transpose_permute", "rank": 1}),
))  # fmt: skip
