"""See and change the calls of torch functions and layers while a unit of the reference runs."""

from __future__ import annotations

import contextlib
import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.nn.modules import module as torch_module
from torch.overrides import TorchFunctionMode

from twinalign.backends.torch_signatures import ARGUMENTS, NO_CALLS, NUMPY_KEYWORDS, REVERSED, SAME, SPREAD
from twinalign.explain.calls import ENTRY, LAYER, UNIT, Apart, Call, TensorFacts


def first_tensor(value: Any) -> torch.Tensor | None:
    """The first tensor in `value` or in nested tuples and lists, None where there is none."""
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return next((found for item in value if (found := first_tensor(item)) is not None), None)
    return None


def facts_of(value: Any, name_of: Callable[[Any], str | None]) -> Any:
    """`value` with every tensor replaced by its `TensorFacts`."""
    if isinstance(value, torch.Tensor):
        return TensorFacts(tuple(value.shape), name_of(value), value.is_floating_point())
    if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
        return type(value)([facts_of(item, name_of) for item in value]) if type(value) in (tuple, list) else value
    return value


@contextlib.contextmanager
def unchanged(module: torch.nn.Module | None) -> Iterator[None]:
    """Restore the module's buffers, its mode and torch's generator after the block."""
    generator = torch.random.get_rng_state()
    buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()] if module is not None else []
    training = [(layer, layer.training) for layer in module.modules()] if module is not None else []
    try:
        yield
    finally:
        torch.random.set_rng_state(generator)
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
        for layer, mode in training:
            layer.training = mode


@contextlib.contextmanager
def intercepting(module: torch.nn.Module | None, handle: Callable[[Call], Any]) -> Iterator[None]:
    """Within the block every call of a torch function and of a layer is made by `handle`, which returns its result.

    What happens outside the module's own call, such as making its inputs, is left alone. Calls are numbered by name,
    in training and in evaluation mode apart, so that a call has the same key in both.
    """
    mode = _Interception(module, handle)
    hooks = [
        torch_module.register_module_forward_pre_hook(mode.before_layer),
        _register_after_layers(mode.after_layer),
    ]
    try:
        with mode:
            yield
    finally:
        for hook in hooks:
            hook.remove()


def _register_after_layers(hook: Callable[..., Any]) -> torch.utils.hooks.RemovableHandle:
    register = torch_module.register_module_forward_hook
    if "with_kwargs" in inspect.signature(register).parameters:
        return register(hook, with_kwargs=True)
    # torch 2.1's does not hand out keyword arguments: a layer that is given its tensors by keyword shows none.
    return register(lambda layer, args, output: hook(layer, args, {}, output))


class _Interception(TorchFunctionMode):
    def __init__(self, module: torch.nn.Module | None, handle: Callable[[Call], Any]) -> None:
        super().__init__()
        self._module = module
        self._handle = handle
        self._counts: Counter[tuple[bool, str]] = Counter()
        # What a scene does before and after its module runs is none of the unit's calls.
        self._paused = module is not None
        self._paths = {} if module is None else {id(layer): path for path, layer in module.named_modules()}
        named = () if module is None else (*module.named_parameters(), *module.named_buffers())
        self._names = {id(tensor): name for name, tensor in named}

    def _name_of(self, value: Any) -> str | None:
        """Of a parameter or buffer, or of a view of one (`pos_embed[:, :n]`, `cls_token.expand(...)`)."""
        own = self._names.get(id(value))
        return own if own is not None else self._names.get(id(getattr(value, "_base", None)))

    def _call(
        self,
        name: str,
        arguments: dict[str, Any],
        execute: Callable[[dict[str, Any]], Any],
        in_place: bool = False,
    ) -> Call:
        training = self._module is not None and self._module.training
        number = self._counts[training, name]
        self._counts[training, name] += 1
        return Call((name, number), arguments, execute, torch, self._name_of, in_place)

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        spelled = getattr(func, "__name__", "__get__")
        if self._paused or spelled in NO_CALLS:
            return func(*args, **(kwargs or {}))
        name = REVERSED.get(spelled) or spelled.strip("_")
        name = SAME.get(name, name)
        if spelled in REVERSED:
            args = args[1], args[0]
        if name in SPREAD and args and (len(args) != 2 or isinstance(args[1], int)):
            args = args[0], tuple(args[1:])
        signature = ARGUMENTS.get(name, ("input",))
        if func in (torch.nn.functional.softmax, torch.nn.functional.log_softmax):
            signature = "input", "dim", "_stacklevel", "dtype"
        positional = [signature[at] if at < len(signature) else str(at) for at in range(len(args))]
        named = {NUMPY_KEYWORDS.get(key, key): value for key, value in (kwargs or {}).items()}

        def execute(arguments: dict[str, Any]) -> Any:
            given = dict(arguments)
            ordered = [given.pop(key) for key in positional]
            expanded = _EXPANSIONS[name](*ordered, **given) if name in _EXPANSIONS else None
            if expanded is not None:
                with self:
                    return expanded()
            return func(*(reversed(ordered) if spelled in REVERSED else ordered), **given)

        arguments = {**dict(zip(positional, args, strict=True)), **named}
        in_place = spelled.endswith("_") and not spelled.endswith("__")
        returned = self._handle(self._call(name, arguments, execute, in_place))
        if isinstance(returned, Apart):
            return returned.value
        if in_place and isinstance(returned, torch.Tensor) and returned is not args[0]:
            return args[0].copy_(returned)
        if isinstance(returned, torch.nn.Parameter):
            # Weight norm binds what it has computed to the layer, which would register a parameter as its weight.
            return returned.view_as(returned)
        return returned

    def before_layer(self, layer: torch.nn.Module, args: tuple[Any, ...]) -> Any:
        """The unit begins, with what the handler says that it is given."""
        if layer is not self._module:
            return None
        given = self._handle(self._call(ENTRY, {"input": args}, lambda arguments: arguments["input"]))
        self._paused = False
        return given

    def after_layer(self, layer: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        """Hand a layer's call to the handler, what that computes not counting as calls of the unit."""
        if self._paused:
            return output
        arguments = {
            "path": self._paths.get(id(layer), type(layer).__name__),
            "kind": type(layer).__name__,
            "module": layer,
            "input": first_tensor([args, kwargs]),
            "output": output,
        }
        self._paused = True
        try:
            name = UNIT if layer is self._module else LAYER
            return self._handle(self._call(name, arguments, lambda given: given["output"]))
        finally:
            self._paused = layer is self._module


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Callable[[], torch.Tensor] | None:
    """Scaled dot-product attention in its steps, None for what is not written out here."""
    if enable_gqa:
        return None

    def compute() -> torch.Tensor:
        factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
        scores = torch.matmul(query, key.transpose(-2, -1)) * factor
        mask = attn_mask
        if is_causal:
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        if mask is not None and mask.dtype == torch.bool:
            scores = scores.masked_fill(mask.logical_not(), -math.inf)
        elif mask is not None:
            scores = scores + mask
        weights = torch.softmax(scores, -1)
        if dropout_p > 0.0:
            weights = torch.nn.functional.dropout(weights, dropout_p)
        return torch.matmul(weights, value)

    return compute


def _multi_head_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: torch.Tensor | None,
    in_proj_bias: torch.Tensor | None,
    bias_k: torch.Tensor | None,
    bias_v: torch.Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: torch.Tensor,
    out_proj_bias: torch.Tensor | None,
    training: bool = True,
    key_padding_mask: torch.Tensor | None = None,
    need_weights: bool = True,
    attn_mask: torch.Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: torch.Tensor | None = None,
    k_proj_weight: torch.Tensor | None = None,
    v_proj_weight: torch.Tensor | None = None,
    static_k: torch.Tensor | None = None,
    static_v: torch.Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> Callable[[], Any] | None:
    """torch's own multi-head attention in its steps ([length, batch, width]), None for its rarer options."""
    if bias_k is not None or bias_v is not None or add_zero_attn or static_k is not None or static_v is not None:
        return None
    if query.dim() != 3 or (dropout_p > 0.0 and training):
        return None

    def compute() -> Any:
        weights: Any = (q_proj_weight, k_proj_weight, v_proj_weight)
        if in_proj_weight is not None and not use_separate_proj_weight:
            weights = in_proj_weight.chunk(3)
        biases = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
        heads = [
            torch.nn.functional.linear(x, w, b).reshape(x.shape[0], x.shape[1], num_heads, -1).permute(1, 2, 0, 3)
            for x, w, b in zip((query, key, value), weights, biases, strict=True)
        ]
        scores = torch.matmul(heads[0] * (1.0 / math.sqrt(heads[0].shape[-1])), heads[1].transpose(-2, -1))
        # [length, length] or [batch x heads, length, length], and [batch, length].
        of_pairs = attn_mask.reshape(scores.shape) if attn_mask is not None and attn_mask.dim() == 3 else attn_mask
        of_keys = None if key_padding_mask is None else key_padding_mask[:, None, None, :]
        for mask in (of_pairs, of_keys):
            if mask is not None and mask.dtype == torch.bool:
                scores = scores.masked_fill(mask, -math.inf)
            elif mask is not None:
                scores = scores + mask
        probabilities = torch.softmax(scores, -1)
        mixed = torch.matmul(probabilities, heads[2]).permute(2, 0, 1, 3).reshape(query.shape[0], query.shape[1], -1)
        output = torch.nn.functional.linear(mixed, out_proj_weight, out_proj_bias)
        if not need_weights:
            return output, None
        return output, probabilities.mean(1) if average_attn_weights else probabilities

    return compute


def _cross_entropy(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Callable[[], torch.Tensor] | None:
    """Cross-entropy of rows and their labels in its steps, None where anything else is asked."""
    plain = weight is None and size_average is None and reduce is None and label_smoothing == 0.0
    if not plain or input.dim() != 2 or target.dim() != 1 or bool((target == ignore_index).any()):
        return None

    def compute() -> torch.Tensor:
        picked = input.gather(1, target.unsqueeze(1)).squeeze(1)
        losses = torch.logsumexp(input, 1) - picked
        return losses.mean() if reduction == "mean" else losses.sum() if reduction == "sum" else losses

    return compute


_EXPANSIONS: dict[str, Callable[..., Callable[[], Any] | None]] = {
    "cross_entropy": _cross_entropy,
    "scaled_dot_product_attention": _attention,
    "multi_head_attention_forward": _multi_head_attention,
}
"""Functions that do many things at once, and the same in single calls, so that hypotheses can reach each."""
