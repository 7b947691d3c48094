"""Observe and change the calls of torch functions and layers while a unit of the reference runs."""

import contextlib
import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.nn.modules import module as torch_module
from torch.overrides import TorchFunctionMode

from twinalign.backends.torch.reference_only.operations import (
    ENTRY,
    HANDED,
    LAYER,
    OF_SLICE,
    UNIT,
    Apart,
    FunctionCall,
    TensorFacts,
    Value,
)
from twinalign.backends.torch.reference_only.signatures import (
    ARGUMENTS,
    NO_CALLS,
    NUMPY_KEYWORDS,
    PACKED,
    RECURRENT,
    REVERSED,
    SAME,
    SPREAD,
)
from twinalign.backends.torch.tensors import tensors_in
from twinalign.patching import replaced


def first_tensor(value: Any) -> torch.Tensor | None:
    """The first tensor in `value` or in nested containers, None without one."""
    return next(iter(tensors_in(value)), None)


def is_tensor(value: Any) -> bool:
    """Whether this is one of torch's tensors."""
    return isinstance(value, torch.Tensor)


def facts_of(value: Any, name_of: Callable[[Any], str | None], made: Mapping[int, tuple[Any, Value]]) -> Any:
    """`value` with every tensor replaced by its `TensorFacts`; `made` is what calls have returned, by its identity."""
    if isinstance(value, torch.Tensor):
        kind = "f" if value.is_floating_point() else "c" if value.is_complex() else "i"
        kind = "b" if value.dtype == torch.bool else kind
        return TensorFacts(tuple(value.shape), name_of(value), kind, made[id(value)][1] if id(value) in made else None)
    if type(value) in (tuple, list):
        return type(value)([facts_of(item, name_of, made) for item in value])
    if isinstance(value, dict):
        return {name: facts_of(item, name_of, made) for name, item in value.items()}
    if isinstance(value, slice):
        return slice(*(facts_of(getattr(value, part), name_of, made) for part in OF_SLICE))
    return value


@contextlib.contextmanager
def unchanged(module: torch.nn.Module | None) -> Iterator[None]:
    """Restore the module's buffers, its mode, torch's generator and its gradient mode after the block.

    A forward pass may bind another tensor to a name (`self.table = self.table.to(...)`): the module has its own again.
    """
    generator, differentiating = torch.random.get_rng_state(), torch.is_grad_enabled()
    buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()] if module is not None else []
    training = [(layer, layer.training) for layer in module.modules()] if module is not None else []
    bound = [(held, _tensors_of(held)) for layer, _ in training for held in (layer._buffers, vars(layer))]
    try:
        yield
    finally:
        for held, tensors in bound:
            held.update(tensors)
        torch.random.set_rng_state(generator)
        torch.set_grad_enabled(differentiating)
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
        for layer, mode in training:
            layer.training = mode


def _tensors_of(held: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in held.items() if isinstance(value, torch.Tensor)}


@contextlib.contextmanager
def intercepting(
    module: torch.nn.Module | None, handle: Callable[[FunctionCall], Any], each: bool = False
) -> Iterator["Interception"]:
    """Inside the block, `handle` makes every call of a torch function or layer, and returns its result.

    Calls outside the module's own call, such as making its inputs, are left alone. Calls are numbered by name,
    separately in training and in evaluation mode, so that a call has the same key in both; if `each`, the numbers begin
    anew whenever the module is called.
    """
    mode = Interception(module, handle, each)
    with contextlib.ExitStack() as stack:
        stack.callback(torch_module.register_module_forward_pre_hook(mode.before_layer).remove)
        stack.callback(_register_after_layers(mode.after_layer).remove)
        stack.enter_context(mode)
        _ACTIVE.append(mode)
        stack.callback(_ACTIVE.remove, mode)
        yield mode


_ACTIVE: list["Interception"] = []


@contextlib.contextmanager
def function_runs(running: bool) -> Iterator[None]:
    """Whether what runs inside the block is the code of a unit that is a function, or only prepares and follows it."""
    with contextlib.ExitStack() as stack:
        for mode in _ACTIVE:
            if mode.of_function:  # those of a module know from its hooks when it runs
                stack.enter_context(replaced(mode, "paused", not running))
        yield


@contextlib.contextmanager
def unnoticed() -> Iterator[None]:
    """What runs inside the block, in the middle of a unit, is none of its calls, and takes none of their numbers."""
    with contextlib.ExitStack() as stack:
        for mode in _ACTIVE:
            stack.enter_context(replaced(mode, "paused", True))
        yield


def _register_after_layers(hook: Callable[..., Any]) -> torch.utils.hooks.RemovableHandle:
    register = torch_module.register_module_forward_hook
    if "with_kwargs" in inspect.signature(register).parameters:
        return register(hook, with_kwargs=True)
    # torch 2.1's does not hand out keyword arguments: a layer that is given its tensors by keyword shows none.
    return register(lambda layer, args, output: hook(layer, args, {}, output))


class Interception(TorchFunctionMode):
    """What `intercepting` yields; while it is `paused`, calls are left alone."""

    def __init__(
        self, module: torch.nn.Module | None, handle: Callable[[FunctionCall], Any], each: bool = False
    ) -> None:
        super().__init__()
        self._module, self.of_function = module, module is None
        self._handle = handle
        self._counts: Counter[tuple[bool, str]] = Counter()
        # What is done before and after the module runs is none of the unit's calls.
        self.paused = not self.of_function
        self._each = each
        self._paths = {} if module is None else {id(layer): path for path, layer in module.named_modules()}
        named = () if module is None else (*module.named_parameters(), *module.named_buffers())
        self._names = {id(tensor): name for name, tensor in named}
        self._in_memory = {tensor.data_ptr(): tensor for _, tensor in named if tensor.numel()}

    def _name_of(self, value: Any) -> str | None:
        """Name of a parameter or buffer, or of the one under a view (`pos_embed[:, :n]`, `.expand(...)`, `.data`)."""
        own = self._names.get(id(value)) or self._names.get(id(getattr(value, "_base", None)))
        if own is None and isinstance(value, torch.Tensor) and value.numel():
            owner = self._in_memory.get(value.data_ptr())
            # One whose memory was replaced, and freed, has its own elsewhere by now.
            same = owner is not None and owner.data_ptr() == value.data_ptr() and owner.shape == value.shape
            own = self._names.get(id(owner)) if same else None
        return own

    def _call(
        self,
        name: str,
        arguments: dict[str, Any],
        execute: Callable[[dict[str, Any]], Any],
        in_place: bool = False,
    ) -> FunctionCall:
        training = self._module is not None and self._module.training
        number = self._counts[training, name]
        self._counts[training, name] += 1
        return FunctionCall((name, number), arguments, execute, torch, self._name_of, in_place)

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        spelled = getattr(func, "__name__", "__get__")
        if self.paused or spelled in NO_CALLS:
            return func(*args, **(kwargs or {}))
        name = REVERSED.get(spelled) or spelled.strip("_")
        name = SAME.get(name, name)
        if spelled in REVERSED:
            args = args[1], args[0]
        if name in SPREAD and args and (len(args) != 2 or isinstance(args[1], int)):
            args = args[0], tuple(args[1:])
        is_packed = name in RECURRENT and len(args) == len(PACKED) and isinstance(args[3], (list, tuple))
        signature = PACKED if is_packed else ARGUMENTS.get(name, ("input",))
        if func in (torch.nn.functional.softmax, torch.nn.functional.log_softmax):
            signature = "input", "dim", "_stacklevel", "dtype"
        positional = [signature[at] if at < len(signature) else str(at) for at in range(len(args))]
        named = {NUMPY_KEYWORDS.get(key, key): value for key, value in (kwargs or {}).items()}

        def execute(arguments: dict[str, Any]) -> Any:
            given = dict(arguments)
            ordered = [given.pop(key) for key in positional]
            if name in RECURRENT:
                _check_recurrent(dict(zip(positional, ordered, strict=True)))
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
        """Start of the unit, with the inputs that the handler returns."""
        if layer is not self._module:
            if self.paused:
                return None
            given = {"path": self._paths.get(id(layer), type(layer).__name__), "input": args}
            # What a handler computes for the layer is none of the unit's calls, and takes none of their numbers.
            self.paused = True
            try:
                return self._handle(self._call(HANDED, given, lambda arguments: arguments["input"]))
            finally:
                self.paused = False
        if self._each:
            self._counts.clear()
        given = self._handle(self._call(ENTRY, {"input": args}, lambda arguments: arguments["input"]))
        self.paused = False
        return given

    def after_layer(self, layer: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        """Hand a layer's call to the handler, whose own computations do not count as calls of the unit."""
        if self.paused:
            return output
        arguments = {
            "path": self._paths.get(id(layer), type(layer).__name__),
            "kind": type(layer).__name__,
            "module": layer,
            "input": first_tensor([args, kwargs]),
            "given": (args, kwargs),
            "output": output,
        }
        self.paused = True
        try:
            name = UNIT if layer is self._module else LAYER
            return self._handle(self._call(name, arguments, lambda given: given["output"]))
        finally:
            self.paused = layer is self._module


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
    """Scaled dot-product attention step by step, None for options that are not covered here."""
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
    """torch's own multi-head attention step by step ([length, batch, width]), None for its rarer options."""
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
    """Cross-entropy of rows and their labels step by step, None for other options."""
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
"""Functions that do many things at once, and the same in single calls, so that causes can reach each."""


def _check_recurrent(given: Mapping[str, Any]) -> None:
    """Raise ValueError where torch's kernels, which do not look, would read beyond a tensor."""
    states = given["hx"] if isinstance(given["hx"], (list, tuple)) else (given["hx"],)
    if "batch_sizes" in given:
        sizes = given["batch_sizes"].tolist()
        if sum(sizes) != len(given["input"]) or sorted(sizes, reverse=True) != sizes or min(sizes) < 1:
            raise ValueError("the sizes of the steps are not those of the packed values")
        samples = sizes[0]
    else:
        samples = given["input"].shape[0 if given["batch_first"] else 1]
    layers = given["num_layers"] * (2 if given["bidirectional"] else 1)
    if any(tuple(state.shape[:2]) != (layers, samples) for state in states):
        raise ValueError(f"the states are not those of {layers} layers and {samples} samples")
