"""Functions of paddle that torch computes in another way, or with other names of arguments: `OWN`, by their names."""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from twinalign.backends.torch.reference_only.sorted_values import median, ordered

Function = Callable[..., Any]
KEYWORDS = {
    "axis": "dim", "x": "input", "y": "other", "epsilon": "eps", "start_axis": "start_dim", "stop_axis": "end_dim",
    "label": "target", "labels": "target", "logit": "input", "threshold_": "threshold",
}  # fmt: skip
"""Arguments of paddle's functions → of torch's."""


def type_of(kind: Any) -> Any:
    """Torch's dtype for one of its own or paddle's name of it; None for None."""
    if kind is None:
        return None
    return kind if isinstance(kind, torch.dtype) else getattr(torch, str(kind).removeprefix("paddle.").strip())


def _sizes(shape: Any) -> list[int]:
    return [int(size) for size in (shape.tolist() if isinstance(shape, torch.Tensor) else shape)]


def _spread(values: tuple[Any, ...]) -> list[int]:
    first = values[0] if len(values) == 1 and not isinstance(values[0], int) else values
    return _sizes(first)


def _reshape(x: Any, *shape: Any, **named: Any) -> Any:
    sizes = _spread(shape or (named["shape"],))
    return x.reshape([x.shape[at] if size == 0 and x.numel() else size for at, size in enumerate(sizes)])


def _transpose(x: Any, *perm: Any, **named: Any) -> Any:
    axes = _spread(perm or (named.get("perm", named.get("dims")),))
    return x.transpose(*axes) if len(axes) == 2 and x.dim() != 2 else x.permute(axes)


def _axes(x: Any, axis: Any) -> Any:
    return tuple(range(x.dim())) if axis is None else tuple(axis) if isinstance(axis, list) else axis


def _reduction(name: str) -> Function:
    def reduce(x: Any, axis: Any = None, keepdim: bool = False, **more: Any) -> Any:
        return getattr(torch, name)(x, dim=_axes(x, axis), keepdim=keepdim, **more)

    return reduce


def _typed(function: Function) -> Function:
    def made(x: Any, axis: Any = None, dtype: Any = None, keepdim: bool = False) -> Any:
        # Some functions have the dtype before `keepdim`, others behind it.
        if isinstance(dtype, bool):
            dtype, keepdim = None, dtype
        return function(x, dim=_axes(x, axis), dtype=type_of(dtype), keepdim=keepdim)

    return made


def _spread_of(name: str) -> Function:
    def spread(x: Any, axis: Any = None, unbiased: bool = True, keepdim: bool = False) -> Any:
        return getattr(torch, name)(x, dim=_axes(x, axis), correction=int(unbiased), keepdim=keepdim)

    return spread


def _norm(x: Any, p: Any = None, axis: Any = None, keepdim: bool = False) -> Any:
    order = 2 if p is None else p
    if isinstance(axis, (tuple, list)) and len(axis) == 2:  # then its norms are those of a matrix
        return torch.linalg.matrix_norm(x, order, tuple(axis), keepdim)
    return torch.linalg.vector_norm(x, 2 if p == "fro" else order, dim=_axes(x, axis), keepdim=keepdim)


def _matmul(x: Any, y: Any, transpose_x: bool = False, transpose_y: bool = False) -> Any:
    return torch.matmul(x.mT if transpose_x else x, y.mT if transpose_y else y)


def _split(x: Any, num_or_sections: Any, axis: int = 0) -> Any:
    size = x.shape[axis]
    if isinstance(num_or_sections, int):
        return list(torch.split(x, size // num_or_sections, axis))
    known = [size for size in num_or_sections if size >= 0]
    sizes = [part if part >= 0 else size - sum(known) for part in num_or_sections]
    return list(torch.split(x, sizes, axis))


def _arange(start: Any = 0, end: Any = None, step: Any = 1, dtype: Any = None) -> Any:
    start, end = (0, start) if end is None else (start, end)
    return torch.arange(start, end, step, dtype=type_of(dtype))


def _filled(name: str) -> Function:
    def made(shape: Any, *value: Any, dtype: Any = None, fill_value: Any = None) -> Any:
        value = value if fill_value is None else (fill_value, *value)
        if name == "full":
            return torch.full(_sizes(shape), value[0], dtype=type_of(dtype or (value[1] if len(value) > 1 else None)))
        return getattr(torch, name)(_sizes(shape), dtype=type_of(dtype or (value[0] if value else None)))

    return made


def _like(name: str) -> Function:
    def made(x: Any, *value: Any, dtype: Any = None, fill_value: Any = None) -> Any:
        value = value if fill_value is None else (fill_value,)
        return getattr(torch, name)(x, *value, dtype=type_of(dtype))

    return made


def _pad(x: Any, pad: Any, mode: str = "constant", value: float = 0.0, **more: Any) -> Any:
    widths = _sizes([pad] * (2 * (x.dim() - 2)) if isinstance(pad, int) else pad)
    if len(widths) == 2 * x.dim() and mode == "constant" and more.get("pad_from_left_axis", True):
        widths = [width for pair in reversed(list(zip(widths[::2], widths[1::2], strict=True))) for width in pair]
    return functional.pad(x, widths, mode, value if mode == "constant" else None)


def _average_pool(number: int) -> Function:
    def pool(
        x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, *more: Any, exclusive: bool = True,
        ceil_mode: bool = False, divisor_override: Any = None,
    ) -> Any:  # fmt: skip
        # avg_pool1d has (exclusive, ceil_mode) by position, the others have them the other way round.
        if more:
            names = ("exclusive", "ceil_mode") if number == 1 else ("ceil_mode", "exclusive")
            found = dict(zip(names, more, strict=False))
            exclusive, ceil_mode = found.get("exclusive", exclusive), found.get("ceil_mode", ceil_mode)
        function = getattr(functional, f"avg_pool{number}d")
        override = {} if divisor_override is None else {"divisor_override": divisor_override}
        return function(x, kernel_size, stride, padding, ceil_mode, not exclusive, **override)

    return pool


def _max_pool(number: int) -> Function:
    def pool(
        x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, return_mask: bool = False,
        ceil_mode: bool = False,
    ) -> Any:  # fmt: skip
        function = getattr(functional, f"max_pool{number}d")
        return function(x, kernel_size, stride, padding, 1, ceil_mode, return_mask)

    return pool


def _cross_entropy(
    input: Any, label: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean",
    soft_label: bool = False, axis: int = -1, use_softmax: bool = True, label_smoothing: float = 0.0,
) -> Any:  # fmt: skip
    scores = input.movedim(axis, 1) if input.dim() > 1 else input
    if soft_label:
        return functional.cross_entropy(
            scores, label.movedim(axis, 1), weight, reduction=reduction, label_smoothing=label_smoothing
        )
    classes = label.squeeze(axis) if label.dim() == input.dim() else label
    if not use_softmax:
        return functional.nll_loss(torch.log(scores), classes, weight, None, ignore_index, None, reduction)
    return functional.cross_entropy(
        scores, classes, weight, None, ignore_index, None, reduction, label_smoothing=label_smoothing
    )


def _interpolate(
    x: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool = False,
    align_mode: int = 0,
) -> Any:  # fmt: skip
    if align_mode or mode == "area":
        raise NotImplementedError("interpolate in the old alignment")
    size = None if size is None else _sizes(size) if not isinstance(size, int) else size
    corners = {} if mode == "nearest" else {"align_corners": align_corners}
    return functional.interpolate(x, size, scale_factor, mode, **corners)


def _scatter(x: Any, index: Any, updates: Any, overwrite: bool = True) -> Any:
    if overwrite:
        return x.index_copy(0, index.reshape(-1), updates)
    emptied = x.index_fill(0, index.reshape(-1), 0)
    return emptied.index_add(0, index.reshape(-1), updates)


def _put_along_axis(arr: Any, indices: Any, values: Any, axis: int, reduce: str = "assign", **more: Any) -> Any:
    values = values if isinstance(values, torch.Tensor) else torch.full_like(indices, values, dtype=arr.dtype)
    values = values.expand_as(indices)
    if reduce == "assign":
        return arr.scatter(axis, indices, values)
    if reduce == "add":
        return arr.scatter_add(axis, indices, values)
    names = {"mul": "prod", "multiply": "prod", "amax": "amax", "amin": "amin", "mean": "mean"}
    return arr.scatter_reduce(axis, indices, values, names[reduce], include_self=more.get("include_self", True))


def _gather_nd(x: Any, index: Any) -> Any:
    return x[tuple(index.unbind(-1))]


def _softmax(name: str) -> Function:
    return lambda x, axis=-1, dtype=None: getattr(torch, name)(x, axis, dtype=type_of(dtype))


def _clip(x: Any, min: Any = None, max: Any = None) -> Any:
    return torch.clamp(x, min, max)


def _attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    training: bool = True,
) -> Any:  # fmt: skip
    q, k, v = (part.transpose(1, 2) for part in (query, key, value))
    if training and dropout_p:
        raise NotImplementedError("a random draw")
    return functional.scaled_dot_product_attention(q, k, v, attn_mask, 0.0, is_causal).transpose(1, 2)


def _layer_norm(x: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, epsilon: float = 1e-5) -> Any:
    shape = [normalized_shape] if isinstance(normalized_shape, int) else list(normalized_shape)
    return functional.layer_norm(x, shape, weight, bias, epsilon)


def _in_float32(value: Any) -> Any:
    """A number as paddle's kernels hold it that have it as an attribute."""
    return float(np.float32(value)) if isinstance(value, float) else value


def _hardsigmoid(x: Any, slope: float = 0.1666667, offset: float = 0.5) -> Any:
    return torch.clamp(x * _in_float32(slope) + _in_float32(offset), 0.0, 1.0)


def _smooth_l1(input: Any, label: Any, reduction: str = "mean", delta: float = 1.0, is_huber: bool = True) -> Any:
    lost = functional.huber_loss(input, label, reduction=reduction, delta=delta)
    return lost if is_huber else lost / delta


def _logits_loss(logit: Any, label: Any, weight: Any = None, reduction: str = "mean", pos_weight: Any = None) -> Any:
    return functional.binary_cross_entropy_with_logits(logit, label, weight, reduction=reduction, pos_weight=pos_weight)


def _focal_loss(
    logit: Any, label: Any, normalizer: Any = None, alpha: float = 0.25, gamma: float = 2.0, reduction: str = "sum"
) -> Any:
    probability = torch.sigmoid(logit)
    missed = label * (1 - probability) + (1 - label) * probability
    weight = (alpha * label + (1 - alpha) * (1 - label)) * missed**gamma
    loss = weight * functional.binary_cross_entropy_with_logits(logit, label, reduction="none")
    loss = loss if normalizer is None else loss / normalizer
    return loss if reduction == "none" else getattr(loss, reduction)()


def _unsqueeze(x: Any, axis: Any) -> Any:
    for one in sorted(axis) if isinstance(axis, Sequence) else (axis,):
        x = x.unsqueeze(int(one))
    return x


def _dropout(x: Any, p: float = 0.5, axis: Any = None, training: bool = True, mode: str = "upscale_in_train") -> Any:
    if training and p:
        raise NotImplementedError("a random draw")
    return x if mode == "upscale_in_train" else x * (1.0 - p)


def _grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: Any = None,
    create_graph: bool = False,
    **more: Any,
) -> list[Any]:
    # Paddle's graph can be gone through again where torch would have freed it.
    options = {"allow_unused": more.get("allow_unused", False), "create_graph": create_graph, "retain_graph": True}
    return list(torch.autograd.grad(outputs, inputs, grad_outputs, **options))


def _sequence_mask(x: Any, maxlen: Any = None, dtype: Any = "int64") -> Any:
    length = int(x.max()) if maxlen is None else maxlen
    return (torch.arange(length) < x[..., None]).to(type_of(dtype))


def _ctc_loss(log_probs: Any, labels: Any, input_lengths: Any, label_lengths: Any, *more: Any, **named: Any) -> Any:
    if named.pop("norm_by_times", False):  # the gradient alone, by the number of steps of each sequence
        share = 1.0 / input_lengths.to(log_probs.dtype)[None, :, None]
        log_probs = log_probs * share + (log_probs * (1.0 - share)).detach()
    # Paddle's takes scores, and norms them itself.
    return functional.ctc_loss(log_probs.log_softmax(-1), labels, input_lengths, label_lengths, *more, **named)


OWN: dict[str, Function] = {
    "ctc_loss": _ctc_loss,
    **{name: _typed(getattr(torch, name)) for name in ("sum", "mean")},
    **{name: _reduction(name) for name in ("amax", "amin", "logsumexp")},
    "max": _reduction("amax"), "min": _reduction("amin"),
    "std": _spread_of("std"), "var": _spread_of("var"), "norm": _norm, "vector_norm": _norm,
    "any": lambda x, axis=None, keepdim=False: torch.any(x) if axis is None else torch.any(x, axis, keepdim),
    "all": lambda x, axis=None, keepdim=False: torch.all(x) if axis is None else torch.all(x, axis, keepdim),
    "prod": lambda x, axis=None, keepdim=False: torch.prod(x) if axis is None else torch.prod(x, axis, keepdim),
    "cumsum": lambda x, axis=None, dtype=None: torch.cumsum(x.reshape(-1) if axis is None else x, axis or 0),
    "cumprod": lambda x, dim=None, dtype=None: torch.cumprod(x, dim),
    "argmax": lambda x, axis=None, keepdim=False, dtype=None: torch.argmax(x, axis, keepdim),
    "argmin": lambda x, axis=None, keepdim=False, dtype=None: torch.argmin(x, axis, keepdim),
    "median": median, "sort": ordered("sort"), "argsort": ordered("argsort"),
    "topk": lambda x, k, axis=-1, largest=True, sorted=True: tuple(torch.topk(x, int(k), axis, largest, sorted)),
    "reshape": _reshape, "view": _reshape, "transpose": _transpose, "permute": _transpose,
    "t": lambda x: x.t(), "numel": lambda x: x.numel(), "unsqueeze": _unsqueeze,
    "squeeze": lambda x, axis=None: x.squeeze() if axis is None else x.squeeze(axis),
    "flatten": lambda x, start_axis=0, stop_axis=-1: x.flatten(start_axis, stop_axis),
    "tile": lambda x, repeat_times: x.repeat(_sizes(repeat_times)),
    "expand": lambda x, *shape, **named: x.expand(_spread(shape or (named["shape"],))),
    "expand_as": lambda x, y: x.expand_as(y), "broadcast_to": lambda x, shape: x.expand(_sizes(shape)),
    "repeat_interleave": lambda x, repeats, axis=None: torch.repeat_interleave(x, repeats, axis),
    "split": _split, "chunk": lambda x, chunks, axis=0: list(torch.chunk(x, chunks, axis)),
    "unbind": lambda input, axis=0: list(torch.unbind(input, axis)),
    "concat": lambda x, axis=0: torch.cat(list(x), axis), "stack": lambda x, axis=0: torch.stack(list(x), axis),
    "roll": lambda x, shifts, axis=None: torch.roll(x, shifts, axis),
    "flip": lambda x, axis: torch.flip(x, [axis] if isinstance(axis, int) else axis),
    "matmul": _matmul, "mm": torch.matmul, "pow": operator.pow,
    "hardshrink": lambda x, threshold=0.5: functional.hardshrink(x, _in_float32(threshold)),
    "softshrink": lambda x, threshold=0.5: functional.softshrink(x, threshold),
    "hardtanh": lambda x, min=-1.0, max=1.0: torch.clamp(x, min, max),
    "thresholded_relu": lambda x, threshold=1.0, value=0.0: torch.where(x > threshold, x, value),
    "square_error_cost": lambda input, label: (input - label) ** 2, "add_n": lambda inputs: sum(_tensors((inputs,))),
    "clip": _clip, "clamp": _clip, "astype": lambda x, dtype: x.to(type_of(dtype)),
    "cast": lambda x, dtype: x.to(type_of(dtype)), "to": lambda x, *given, **named: x.to(*map(type_of, given)),
    "detach": lambda x: x.detach(), "clone": lambda x: x.clone(), "assign": lambda x, output=None: x.clone(),
    "item": lambda x, *at: x.item(), "square": torch.square, "numpy": lambda x: x.detach().numpy(),
    "set_value": lambda x, value: x.detach().copy_(torch.as_tensor(value)), "tolist": lambda x: x.tolist(),
    "arange": _arange, "zeros": _filled("zeros"), "ones": _filled("ones"), "full": _filled("full"),
    "zeros_like": _like("zeros_like"), "ones_like": _like("ones_like"), "full_like": _like("full_like"),
    "eye": lambda n, m=None, dtype=None: torch.eye(n, n if m is None else m, dtype=type_of(dtype)),
    "to_tensor": lambda data, dtype=None: torch.as_tensor(data, dtype=type_of(dtype)),
    "linspace": lambda start, stop, num, dtype=None: torch.linspace(start, stop, int(num), dtype=type_of(dtype)),
    "meshgrid": lambda *given, indexing="ij": list(torch.meshgrid(*_tensors(given), indexing=indexing)),
    "tril": lambda x, diagonal=0: torch.tril(x, diagonal), "triu": lambda x, diagonal=0: torch.triu(x, diagonal),
    "where": lambda condition, x=None, y=None: torch.where(condition, x, y),
    "masked_fill": lambda x, mask, value: x.masked_fill(mask, value),
    "gather": lambda x, index, axis=0: torch.index_select(x, axis, index.reshape(-1)),
    "index_select": lambda x, index, axis=0: torch.index_select(x, axis, index),
    "index_add": lambda x, index, axis, value: x.index_add(axis, index, value),
    "take_along_axis": lambda arr, indices, axis, broadcast=True: torch.take_along_dim(arr, indices, axis),
    "put_along_axis": _put_along_axis, "scatter": _scatter, "gather_nd": _gather_nd,
    "scatter_nd_add": lambda x, index, updates: x.index_put(tuple(index.unbind(-1)), updates, accumulate=True),
    "one_hot": lambda x, num_classes=-1: functional.one_hot(x, num_classes).to(torch.get_default_dtype()),
    "sequence_mask": _sequence_mask, "softmax": _softmax("softmax"), "log_softmax": _softmax("log_softmax"),
    "linear": lambda x, weight, bias=None: functional.linear(x, weight.t(), bias),
    "layer_norm": _layer_norm, "hardsigmoid": _hardsigmoid,
    "normalize": lambda x, p=2, axis=1, epsilon=1e-12: functional.normalize(x, p, axis, epsilon),
    "cosine_similarity": lambda x1, x2, axis=1, eps=1e-8: (x1 * x2).sum(axis)
    / torch.clamp(torch.linalg.vector_norm(x1, dim=axis) * torch.linalg.vector_norm(x2, dim=axis), min=eps),
    "gelu": lambda x, approximate=False: functional.gelu(
        x, approximate=approximate if isinstance(approximate, str) else "tanh" if approximate else "none"
    ),
    "glu": lambda x, axis=-1: functional.glu(x, axis), "dropout": _dropout, "pad": _pad,
    "embedding": lambda x, weight, padding_idx=None, **more: functional.embedding(x, weight),
    "interpolate": _interpolate, "scaled_dot_product_attention": _attention,
    "unfold": lambda x, kernel_sizes, strides=1, paddings=0, dilations=1: functional.unfold(
        x, kernel_sizes, dilations, paddings, strides
    ),
    **{f"avg_pool{number}d": _average_pool(number) for number in (1, 2, 3)},
    **{f"max_pool{number}d": _max_pool(number) for number in (1, 2, 3)},
    "cross_entropy": _cross_entropy, "binary_cross_entropy_with_logits": _logits_loss, "smooth_l1_loss": _smooth_l1,
    "nll_loss": lambda input, label, weight=None, ignore_index=-100, reduction="mean": functional.nll_loss(
        input, label, weight, None, ignore_index, None, reduction
    ),
    "sigmoid_focal_loss": _focal_loss,
    "binary_cross_entropy": lambda input, label, weight=None, reduction="mean": functional.binary_cross_entropy(
        input, label, weight, reduction=reduction
    ),
    **{
        name: functools.partial(lambda function, input, label, reduction="mean": function(
            input, label, reduction=reduction
        ), getattr(functional, name))
        for name in ("mse_loss", "l1_loss")
    },
    "kl_div": lambda input, label, reduction="mean", log_target=False: functional.kl_div(
        input, label, reduction=reduction, log_target=log_target
    ),
    "is_floating_point": torch.is_floating_point, "get_default_dtype": torch.get_default_dtype,
    "increment": lambda x, value=1.0: x + value, "scale": lambda x, scale=1.0, bias=0.0: x * scale + bias,
    "rsqrt": torch.rsqrt, "floor_divide": torch.floor_divide, "grad": _grad,
}  # fmt: skip


def _tensors(given: Any) -> list[Any]:
    return list(given[0]) if len(given) == 1 and isinstance(given[0], (list, tuple)) else list(given)
