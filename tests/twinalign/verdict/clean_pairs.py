"""Clean pairs: torchvision's and paddle.vision's models with the same weights, recorded forward, loss and backward.

The conversion is by registration order and class, and holds only where both libraries define the layers in the same
order; `twinalign.conversion` does it properly, and is not used here so that the verdict is tested without it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import paddle
import torch
import torchvision

SEED = 20260
BATCH = 2

# Left out because the two libraries build different networks: squeezenet (pooling with and without ceil_mode),
# shufflenet_v2_x2_0 (other widths), googlenet and inception_v3 (other auxiliary heads).
# torchvision's name -> (paddle.vision's name, image size); sizes are as small as the architecture allows.
PAIRS = {
    "shufflenet_v2_x0_5": ("shufflenet_v2_x0_5", 64),
    "shufflenet_v2_x1_0": ("shufflenet_v2_x1_0", 64),
    "shufflenet_v2_x1_5": ("shufflenet_v2_x1_5", 64),
    "mobilenet_v2": ("mobilenet_v2", 64),
    "mobilenet_v3_small": ("mobilenet_v3_small", 64),
    "mobilenet_v3_large": ("mobilenet_v3_large", 64),
    "densenet121": ("densenet121", 64),
    "densenet161": ("densenet161", 64),
    "densenet169": ("densenet169", 64),
    "densenet201": ("densenet201", 64),
    "resnet18": ("resnet18", 64),
    "resnet34": ("resnet34", 64),
    "resnet50": ("resnet50", 64),
    "resnet101": ("resnet101", 64),
    "resnet152": ("resnet152", 64),
    "resnext50_32x4d": ("resnext50_32x4d", 64),
    "wide_resnet50_2": ("wide_resnet50_2", 64),
    "alexnet": ("alexnet", 224),
    "vgg11": ("vgg11", 48),
    "vgg13": ("vgg13", 48),
    "vgg11_bn": ("vgg11", 48),
}


@dataclasses.dataclass
class Recorded:
    """The four recordings of one pair: forward (`logits`, `loss`) and `gradient.*`, reference layout and names."""

    reference: dict[str, np.ndarray]
    reproduced: dict[str, np.ndarray]
    reference64: dict[str, np.ndarray]
    reproduced64: dict[str, np.ndarray]


def record_pair(name: str, *, train: bool = False, seed: int = SEED) -> Recorded:
    """Build both models, copy the weights, run both in float32 and float64."""
    other, size = PAIRS[name]
    torch.manual_seed(seed)
    paddle.seed(seed)
    reference = getattr(torchvision.models, name)(num_classes=10)
    options = {"batch_norm": True} if name.endswith("_bn") else {}
    reproduced = getattr(paddle.vision.models, other)(num_classes=10, **options)
    rng = np.random.default_rng(seed)
    images = rng.standard_normal((BATCH, 3, size, size)).astype(np.float32)
    spread_statistics(reference, images, seed)
    places = list(match_layers(reference, reproduced))
    copy_weights(places)
    labels = rng.integers(0, 10, BATCH)
    reference.train(train)
    reproduced.train() if train else reproduced.eval()
    for model in (reference, reproduced):
        silence_dropout(model)
    reference32 = run_reference(reference, images, labels)
    reproduced32 = run_reproduced(reproduced, places, images, labels)
    reference.double()
    reproduced.to(dtype="float64")
    images = images.astype(np.float64)
    reference64 = run_reference(reference, images, labels)
    reproduced64 = run_reproduced(reproduced, places, images, labels)
    return Recorded(reference32, reproduced32, reference64, reproduced64)


def spread_statistics(model: torch.nn.Module, images: np.ndarray, seed: int) -> None:
    """Give batch norms random scales and offsets, and the statistics of one batch, so that mixing them up shows.

    With statistics that do not fit, activations of deep networks grow until paddle's cross entropy clips at -64, which
    is a difference of the frameworks and not rounding.
    """
    generator = torch.Generator().manual_seed(seed)
    norms = [layer for layer in model.modules() if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm)]
    momentum = [layer.momentum for layer in norms]
    with torch.no_grad():
        for layer in norms:
            layer.weight.copy_(0.5 + torch.rand(layer.weight.shape, generator=generator))
            layer.bias.copy_(0.1 * torch.randn(layer.bias.shape, generator=generator))
            layer.momentum = 1.0
        model.train()
        model(torch.from_numpy(images))
    for layer, value in zip(norms, momentum, strict=True):
        layer.momentum = value


def silence_dropout(model: object) -> None:
    """Dropout draws differ between the frameworks by design."""
    layers = model.modules() if isinstance(model, torch.nn.Module) else model.sublayers()
    for layer in layers:
        if type(layer).__name__ in ("Dropout", "Dropout2D", "Dropout2d"):
            layer.p = 0.0


def match_layers(reference: torch.nn.Module, reproduced: paddle.nn.Layer) -> Iterator[tuple[str, object, object]]:
    """(name, torch layer, paddle layer) of the layers with weights, in registration order within each class."""
    wanted: dict[str, list[tuple[str, object]]] = {"conv": [], "norm": [], "linear": []}
    for name, layer in reference.named_modules():
        if isinstance(layer, torch.nn.Conv2d):
            wanted["conv"].append((name, layer))
        elif isinstance(layer, torch.nn.modules.batchnorm._BatchNorm):
            wanted["norm"].append((name, layer))
        elif isinstance(layer, torch.nn.Linear):
            wanted["linear"].append((name, layer))
    found: dict[str, list[object]] = {"conv": [], "norm": [], "linear": []}
    for layer in reproduced.sublayers():
        if isinstance(layer, paddle.nn.Conv2D):
            found["conv"].append(layer)
        elif "BatchNorm" in type(layer).__name__:
            found["norm"].append(layer)
        elif isinstance(layer, paddle.nn.Linear):
            found["linear"].append(layer)
    for kind, layers in wanted.items():
        if len(layers) != len(found[kind]):
            raise AssertionError(f"{len(layers)} {kind} layers against {len(found[kind])}")
        for (name, layer), other in zip(layers, found[kind], strict=True):
            yield name, layer, other


def copy_weights(places: list[tuple[str, object, object]]) -> None:
    """Copy torch's values into the paddle layers: Linear transposed, running statistics renamed."""
    for name, layer, other in places:
        values = {"weight": layer.weight, "bias": layer.bias}
        if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm):
            values |= {"_mean": layer.running_mean, "_variance": layer.running_var}
            assert layer.eps == other._epsilon, name
        for key, value in values.items():
            target = getattr(other, key)
            if value is None:
                assert target is None or key == "bias", f"{name}.{key}"
                continue
            array = value.detach().numpy()
            array = array.T if isinstance(layer, torch.nn.Linear) and key == "weight" else array
            assert list(array.shape) == list(target.shape), f"{name}.{key}: {array.shape} {target.shape}"
            target.set_value(np.ascontiguousarray(array))


def run_reference(model: torch.nn.Module, images: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Logits, cross entropy and every gradient."""
    model.zero_grad()
    logits = model(torch.from_numpy(images))
    loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels))
    loss.backward()
    found = {"logits": logits.detach().numpy().copy(), "loss": loss.detach().numpy().copy()}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            found[f"gradient.{name}"] = parameter.grad.numpy().copy()
    return found


def run_reproduced(
    model: paddle.nn.Layer, places: list[tuple[str, object, object]], images: np.ndarray, labels: np.ndarray
) -> dict[str, np.ndarray]:
    """The same of the paddle model, gradients of Linear weights transposed to torch's layout."""
    model.clear_gradients()
    logits = model(paddle.to_tensor(images))
    loss = paddle.nn.functional.cross_entropy(logits, paddle.to_tensor(labels))
    loss.backward()
    found = {"logits": logits.numpy().copy(), "loss": loss.numpy().copy()}
    for name, layer, other in places:
        for key in ("weight", "bias"):
            parameter = getattr(other, key, None)
            if getattr(layer, key) is None or parameter is None or parameter.grad is None:
                continue
            array = parameter.grad.numpy()
            transposed = isinstance(layer, torch.nn.Linear) and key == "weight"
            found[f"gradient.{name}.{key}"] = np.ascontiguousarray(array.T if transposed else array)
    return found


def allowances(name: str) -> tuple[str, ...]:
    """What paddle is known to keep in float32 in this network (docs/verdict.md, "Float32 constants")."""
    found = ["paddle_batch_norm_epsilon"]
    if "v3" in name:
        found.append("paddle_hard_activation")
    return tuple(found)
