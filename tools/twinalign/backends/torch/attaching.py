"""What a trainer in torch does around its model: calls, backward, clipping, loss scaling, optimizer settings."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from twinalign.backends.torch.tensors import is_tensor
from twinalign.backends.watched_calls import removing, watching_clips, watching_losses, watching_scaler
from twinalign.patching import replaced

_KINDS = {"Adam": "adam", "AdamW": "adam", "SGD": "sgd"}


def unwrapped(model: Any) -> Any:
    while isinstance(model, (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)):
        model = model.module
    return getattr(model, "_orig_mod", model)


def watch_calls(layer: Any, before: Callable[..., Any], after: Callable[..., Any]) -> Callable[[], None]:
    return removing(
        [
            layer.register_forward_pre_hook(before, with_kwargs=True),
            layer.register_forward_hook(after, with_kwargs=True),
        ]
    )


@contextlib.contextmanager
def watching_updates(before: Callable[[Any, bool], None], after: Callable[[Any], None]) -> Iterator[None]:
    last: dict[int, RemovableHandle] = {}

    def behind_others(optimizer: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        given = (*arguments[1:], *keywords.values())  # the first is the optimizer
        before(optimizer, any(map(callable, given)))

    def about_to_step(optimizer: Any, *given: Any) -> None:
        forget(optimizer)  # of a step that raised
        # torch calls the optimizer's own hooks behind those of all optimizers, in their order: clipping comes first.
        last[id(optimizer)] = optimizer.register_step_pre_hook(behind_others)

    def stepped(optimizer: Any, *given: Any) -> None:
        forget(optimizer)
        after(optimizer)

    def forget(optimizer: Any) -> None:
        if id(optimizer) in last:
            last.pop(id(optimizer)).remove()

    # Not a replaced `step`: a schedule that was made before keeps the method that it found.
    handles = [register_optimizer_step_pre_hook(about_to_step), register_optimizer_step_post_hook(stepped)]
    try:
        yield
    finally:
        for handle in [*handles, *last.values()]:
            handle.remove()


@contextlib.contextmanager
def watching_backward(before: Callable[[], None], after: Callable[[Any], None]) -> Iterator[None]:
    original = torch.autograd.backward

    @functools.wraps(original)
    def backward(tensors: Any, *arguments: Any, **keywords: Any) -> Any:
        before()
        result = original(tensors, *arguments, **keywords)
        after(tensors if isinstance(tensors, torch.Tensor) else tensors[0])
        return result

    with replaced(torch.autograd, "backward", backward):
        yield


def watching_cross_entropy(
    seen: Callable[[Any, Any, dict[str, Any]], Any],
) -> contextlib.AbstractContextManager[None]:
    return watching_losses(torch.nn.functional.cross_entropy, seen)


@contextlib.contextmanager
def watching_clipping(before: Callable[[str, float], None], after: Callable[[Any, Any], None]) -> Iterator[None]:
    watched = functools.partial(watching_clips, is_tensor=is_tensor, before=before, after=after)
    with (
        watched("norm", torch.nn.utils.clip_grad_norm_),
        watched("value", torch.nn.utils.clip_grad_value_),
    ):
        yield


@contextlib.contextmanager
def watching_scalers(seen: Callable[[str, float, Any], None]) -> Iterator[None]:
    def scale_of(scaler: Any) -> float:
        return float(scaler.get_scale()) if scaler.is_enabled() else 1.0

    with contextlib.ExitStack() as stack:
        for name in ("scale", "unscale_", "step"):
            stack.enter_context(watching_scaler(torch.amp.GradScaler, name, name, scale_of, seen))
        yield


def is_recording_gradients() -> bool:
    return torch.is_grad_enabled()


def autocast_dtype() -> str | None:
    for device in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device):
            return str(torch.get_autocast_dtype(device)).removeprefix("torch.")
    return None


def dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


@torch.no_grad()
def total_norm(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    if not tensors:
        return torch.zeros(())
    norms = torch._foreach_norm([t.coalesce().values() if t.is_sparse else t.detach() for t in tensors])
    return torch.linalg.vector_norm(torch.stack([norm.to(norms[0].device) for norm in norms]).double())


@torch.no_grad()
def sums(tensors: Sequence[torch.Tensor]) -> list[float]:
    found = [tensor.detach().sum(dtype=torch.float64) for tensor in tensors]
    return torch.stack([one.to(found[0].device) for one in found]).tolist() if found else []


def clips_itself(optimizer: Any) -> bool:
    return False


def prepare_optimizer(optimizer: Any) -> None: ...


def optimizer_settings(optimizer: Any) -> list[tuple[torch.Tensor, dict[str, Any]]]:
    found = []
    kind = _KINDS.get(type(optimizer).__name__, type(optimizer).__name__)
    for group in optimizer.param_groups:
        settings: dict[str, Any] = {"kind": kind, "lr": float(group["lr"])}
        settings["weight_decay"] = float(group.get("weight_decay") or 0.0)
        settings["decoupled"] = bool(group.get("decoupled_weight_decay", type(optimizer).__name__ == "AdamW"))
        if "betas" in group:
            settings |= {"beta1": float(group["betas"][0]), "beta2": float(group["betas"][1])}
        if "eps" in group:
            settings["epsilon"] = float(group["eps"])
        if kind == "sgd":
            settings |= {name: float(group[name]) for name in ("momentum", "dampening", "nesterov")}
        found += [(parameter, settings) for parameter in group["params"]]
    return found


def learning_rates(optimizer: Any) -> list[float]:
    return [float(group["lr"]) for group in optimizer.param_groups]


def steps_made(optimizer: Any, parameter: torch.Tensor) -> int:
    return int(optimizer.state.get(parameter, {}).get("step", 0))


def master_weight(optimizer: Any, parameter: torch.Tensor) -> torch.Tensor | None:
    return None
