"""What a trainer in paddle does around its model: calls, backward, clipping, loss scaling, optimizer settings."""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import paddle
from paddle.amp.grad_scaler import AmpScaler
from paddle.nn.clip import ClipGradBase

from twinalign.backends.optimizer_steps import watching_steps_of
from twinalign.backends.paddle.optimizers import held_parameters
from twinalign.backends.paddle.tensors import is_tensor
from twinalign.backends.watched_calls import removing, watching_clips, watching_losses, watching_scaler
from twinalign.patching import family, replaced, replaced_everywhere

_KINDS = {"Adam": "adam", "AdamW": "adam", "SGD": "sgd", "Momentum": "sgd"}


def unwrapped(model: Any) -> Any:
    while isinstance(model, paddle.DataParallel):
        model = model._layers
    return model


def watch_calls(layer: Any, before: Callable[..., Any], after: Callable[..., Any]) -> Callable[[], None]:
    return removing(
        [
            layer.register_forward_pre_hook(before, with_kwargs=True),
            layer.register_forward_post_hook(after, with_kwargs=True),
        ]
    )


def watching_updates(
    before: Callable[[Any, bool], None], after: Callable[[Any], None]
) -> contextlib.AbstractContextManager[None]:
    def about_to_step(optimizer: Any) -> None:
        before(optimizer, isinstance(optimizer, paddle.optimizer.LBFGS))

    return watching_steps_of(paddle.optimizer.Optimizer, about_to_step, after, ("step", "minimize"))


@contextlib.contextmanager
def watching_backward(before: Callable[[], None], after: Callable[[Any], None]) -> Iterator[None]:
    original, several = paddle.Tensor.backward, paddle.autograd.backward

    @functools.wraps(original)
    def backward(self: Any, *arguments: Any, **keywords: Any) -> Any:
        before()
        result = original(self, *arguments, **keywords)
        after(self)
        return result

    @functools.wraps(several)
    def backward_of(tensors: Any, *arguments: Any, **keywords: Any) -> Any:
        before()
        result = several(tensors, *arguments, **keywords)
        after(tensors[0] if isinstance(tensors, (list, tuple)) else tensors)
        return result

    with replaced(paddle.Tensor, "backward", backward), replaced_everywhere(several, backward_of):
        yield


def watching_cross_entropy(
    seen: Callable[[Any, Any, dict[str, Any]], Any],
) -> contextlib.AbstractContextManager[None]:
    return watching_losses(paddle.nn.functional.cross_entropy, seen)


@contextlib.contextmanager
def watching_clipping(before: Callable[[str, float], None], after: Callable[[Any, Any], None]) -> Iterator[None]:
    watched = functools.partial(watching_clips, is_tensor=is_tensor, before=before, after=after)

    def in_optimizer(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(self: Any, pairs: Any) -> Any:
            kinds = {"ClipGradByGlobalNorm": "norm", "ClipGradByNorm": "norm of each tensor"}
            limit = getattr(self, "clip_norm", getattr(self, "max", math.nan))
            before(kinds.get(type(self).__name__, "value"), float(limit))
            result = original(self, pairs)
            after(None, result)
            return result

        return call

    with contextlib.ExitStack() as stack:
        stack.enter_context(watched("norm", paddle.nn.utils.clip_grad_norm_))
        stack.enter_context(watched("value", paddle.nn.utils.clip_grad_value_))
        for kind in family(ClipGradBase):
            if "__call__" in vars(kind):
                stack.enter_context(replaced(kind, "__call__", in_optimizer(vars(kind)["__call__"])))
        yield


@contextlib.contextmanager
def watching_scalers(seen: Callable[[str, float, Any], None]) -> Iterator[None]:
    def scale_of(scaler: Any) -> float:
        return float(scaler._scale.item()) if scaler.is_enable() else 1.0

    scaler = paddle.amp.GradScaler
    methods = [(AmpScaler, "scale", "scale"), (AmpScaler, "_unscale", "unscale_")]
    with contextlib.ExitStack() as stack:
        for kind, name, event in [*methods, (scaler, "step", "step"), (scaler, "minimize", "step")]:
            stack.enter_context(watching_scaler(kind, name, event, scale_of, seen))
        yield


def is_recording_gradients() -> bool:
    return bool(paddle.is_grad_enabled())


def autocast_dtype() -> str | None:
    tracer = paddle.base.framework._dygraph_tracer()
    level = getattr(tracer, "_amp_level", None)
    return None if level is None or level.name == "O0" else str(tracer._amp_dtype)


def dtype_name(tensor: paddle.Tensor) -> str:
    return str(tensor.dtype).removeprefix("paddle.")


def _summed_rows(tensor: paddle.Tensor) -> paddle.Tensor:
    return paddle.nn.clip.get_tensor_from_selected_rows(paddle.nn.clip.merge_selected_rows(tensor))


@paddle.no_grad()
def total_norm(tensors: Sequence[Any]) -> paddle.Tensor:
    if not tensors:
        return paddle.zeros([])
    dense = [_summed_rows(tensor) if tensor.is_selected_rows() else tensor for tensor in tensors]
    squares = paddle.concat([paddle._C_ops.squared_l2_norm(tensor).reshape([1]) for tensor in dense])
    return squares.sum(dtype="float64").sqrt()


@paddle.no_grad()
def sums(tensors: Sequence[Any]) -> list[float]:
    if not tensors:
        return []
    return list(paddle.stack([tensor.detach().sum(dtype="float64") for tensor in tensors]).tolist())


def clips_itself(optimizer: Any) -> bool:
    return optimizer._grad_clip is not None


def prepare_optimizer(optimizer: Any) -> None:
    groups = [group for group in optimizer._param_groups or [] if isinstance(group, dict)]
    for group in groups:
        group["grad_clip"] = None
    optimizer._grad_clip, optimizer._dtype = None, held_parameters(optimizer)[0].dtype


def optimizer_settings(optimizer: Any) -> list[tuple[paddle.Tensor, dict[str, Any]]]:
    name = type(optimizer).__name__
    kind = _KINDS.get(name, name)
    found, rate = [], float(optimizer.get_lr())
    groups: list[Any] = optimizer._param_groups or []
    if groups and not isinstance(groups[0], dict):
        groups = [{"params": groups}]
    for group in groups:
        for parameter in group["params"]:
            ratio = parameter.optimize_attr.get("learning_rate", 1.0)
            settings: dict[str, Any] = {"kind": kind, "lr": rate * float(ratio)}
            settings |= {"weight_decay": _decay(optimizer, group, parameter), "decoupled": name == "AdamW"}
            if kind == "adam":
                for key in ("beta1", "beta2", "epsilon"):
                    settings[key] = float(group.get(key, getattr(optimizer, f"_{key}")))
            if kind == "sgd":
                settings["momentum"] = float(getattr(optimizer, "_momentum", 0.0))
                settings |= {"dampening": 0.0, "nesterov": float(getattr(optimizer, "_use_nesterov", False))}
            found.append((parameter, settings))
    return found


def _decay(optimizer: Any, group: dict[str, Any], parameter: Any) -> float:
    if type(optimizer).__name__ == "AdamW":
        decays = optimizer._apply_decay_param_fun
        if decays is not None and not decays(parameter.name):
            return 0.0
        return float(group.get("weight_decay", optimizer._weight_decay) or 0.0)
    # Momentum keeps it apart, for its kernel.
    if getattr(optimizer, "_regularization_method", "") == "l2_decay" and not getattr(parameter, "regularizer", None):
        return float(group.get("regularization_coeff", optimizer._regularization_coeff))
    regularization = getattr(parameter, "regularizer", None) or optimizer.regularization
    return float(getattr(regularization, "_coeff", getattr(regularization, "_regularization_coeff", 0.0)) or 0.0)


def learning_rates(optimizer: Any) -> list[float]:
    ratios = {parameter.optimize_attr.get("learning_rate", 1.0) for parameter in held_parameters(optimizer)}
    return [float(optimizer.get_lr()) * float(ratio) for ratio in ratios]


def steps_made(optimizer: Any, parameter: paddle.Tensor) -> int:
    powers = optimizer._accumulators.get("beta1_pow_acc", {}).get(parameter.name)
    if powers is None:
        return 0
    return round(math.log(powers.item()) / math.log(float(optimizer._beta1))) - 1


def master_weight(optimizer: Any, parameter: paddle.Tensor) -> Any:
    return optimizer._master_weights.get(parameter.name)
