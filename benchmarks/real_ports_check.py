"""Runs in one side's interpreter, without twinalign: models of pairs in float64, outputs and gradients.

    python benchmarks/real_ports_check.py torch|paddle WORK PAIR …

The port gets the weights that twinalign converted, and if it then differs those of the torch model taken in their
order. What asks for float32 gets float64. Where the two differ, the torch model with the constants that paddle's own
kernels keep in float32, also in float64, is compared: epsilon of batch norms, and the slope of the hard sigmoid. Where
they differ still, both are built in float64: constants that constructors make, such as a table of positions, differ
otherwise by what float32 leaves of them.
"""

from __future__ import annotations

import contextlib
import json
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import real_ports_pairs


def main(framework: str, work: str, *names: str) -> None:
    """Write `check_torch.npz` with the torch models' outputs and gradients, then `check.json` for the ports."""
    for name in names:
        pair, folder = real_ports_pairs.every_pair()[name], Path(work) / name
        try:
            if framework == "torch":
                weights = dict(np.load(folder / "weights" / "RealPort_ref.npz"))
                np.savez(folder / "check_torch.npz", **_torch(pair, weights, _inputs(folder)))
                np.savez(folder / "check_constants.npz", **_torch(pair, weights, _inputs(folder), constants=True))
                np.savez(folder / "check_built.npz", **_torch(pair, weights, _inputs(folder), built="float64"))
            else:
                (folder / "check.json").write_text(json.dumps(_compared(pair, folder)))
        except Exception as error:
            (folder / f"check_{framework}.error").write_text(traceback.format_exc())
            print(f"{name}: {type(error).__name__}: {str(error)[:300]}", flush=True)


def _inputs(folder: Path) -> dict[str, np.ndarray]:
    return dict(np.load(folder / "weights" / "RealPort_ref_inputs.npz"))


def _compared(pair: real_ports_pairs.Pair, folder: Path) -> dict[str, Any]:
    """The nearest that the port comes to the torch model."""
    torch, constants, built = (dict(np.load(folder / f"check_{kind}.npz")) for kind in ("torch", "constants", "built"))
    inputs, weights = _inputs(folder), folder / "weights"
    found: dict[str, Any] = {"equal": False, "outputs": None}
    for kind, file in (("twinalign", "RealPort_paddle.npz"), ("order", "RealPort_ref.npz")):
        if not (weights / file).exists():
            continue
        try:
            arrays = dict(np.load(weights / file))
            paddle = _paddle(pair, arrays, inputs, kind == "order")
        except Exception as error:
            found[kind] = f"{type(error).__name__}: {str(error)[:300]}"
            continue
        result = {"weights": kind, **difference(torch, paddle)}
        if not result["equal"] and (near := difference(constants, paddle))["equal"]:
            result = {"weights": kind, **near, "constants": "paddle's own constants"}
        if not result["equal"]:
            near = difference(built, _paddle(pair, arrays, inputs, kind == "order", "float64"))
            result = {"weights": kind, **near, "constants": "models built in float64"} if near["equal"] else result
        if found["outputs"] is None or result["outputs"] < found["outputs"]:
            found.update(result)
        if found["equal"]:
            break
    return found


def difference(torch: dict[str, np.ndarray], paddle: dict[str, np.ndarray]) -> dict[str, Any]:
    """Largest difference of an output over the largest value there; that of the root sum of squares of gradients."""
    first, second = ([file[key] for key in file if key.startswith("output.")] for file in (torch, paddle))
    both = list(zip(first, second, strict=False))
    same = [a.shape == b.shape for a, b in both]
    outputs = [
        float(np.abs(a - b).max() / np.abs(a).max()) if fit else 1e300 for (a, b), fit in zip(both, same, strict=True)
    ]
    norms = [
        float(np.sqrt(sum(np.square(array).sum() for key, array in file.items() if key.startswith("gradient."))))
        for file in (torch, paddle)
    ]
    found = {"outputs": max(outputs, default=1e300), "gradients": abs(norms[0] - norms[1]) / max(norms[0], 1e-300)}
    if not all(same) or len(first) != len(second):
        found["shapes"] = [[list(array.shape) for array in each] for each in (first, second)]
    return {**found, "equal": found["outputs"] < 1e-9 and len(first) == len(second)}


def _torch(
    pair: real_ports_pairs.Pair,
    weights: dict[str, np.ndarray],
    arrays: dict[str, np.ndarray],
    constants: bool = False,
    built: str = "",
) -> dict[str, Any]:
    import torch

    single = getattr(torch, "single_precision", torch.float32)
    torch.single_precision = single  # what `torch.float32` was before this script changed it
    torch.set_default_dtype(torch.float64 if built else single)
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    model = real_ports_pairs.build(pair.reference).eval()
    missing = model.load_state_dict({key: torch.from_numpy(array) for key, array in weights.items()}, strict=False)
    assert not missing.unexpected_keys, missing
    model.double()
    torch.set_default_dtype(torch.float64)
    tensors = {key: torch.from_numpy(array) for key, array in arrays.items()}
    tensors = {key: value.double() if value.is_floating_point() else value for key, value in tensors.items()}
    if not constants:
        return _measured(pair, model, tensors, "torch")
    for layer in model.modules():
        if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm):
            layer.eps = float(np.float32(layer.eps))
    slope, before = float(np.float32(0.1666667)), torch.nn.functional.hardsigmoid
    torch.nn.functional.hardsigmoid = lambda x, inplace=False: (x * slope + 0.5).clamp(0, 1)
    try:
        return _measured(pair, model, tensors, "torch")
    finally:
        torch.nn.functional.hardsigmoid = before


def _paddle(
    pair: real_ports_pairs.Pair,
    weights: dict[str, np.ndarray],
    arrays: dict[str, np.ndarray],
    by_order: bool,
    built: str = "float32",
) -> dict[str, Any]:
    import paddle

    paddle.set_default_dtype(built)
    with paddle.utils.unique_name.guard():
        model = real_ports_pairs.build(pair.port)
    model.eval()
    if by_order:
        weights = _in_order(model, weights)
    own = model.state_dict()
    # What the constructor computes, such as a table of positions, keeps its own digits.
    given = {k: a for k, a in weights.items() if k in own and not np.array_equal(own[k].numpy().astype(a.dtype), a)}
    model.set_state_dict({key: paddle.to_tensor(array).astype(own[key].dtype) for key, array in given.items()})
    # `Layer.to` casts integers too, such as the indices of relative positions.
    whole = [
        (layer, key, buffer.clone())
        for layer in model.sublayers(True)
        for key, buffer in layer._buffers.items()
        if buffer is not None and not buffer.is_floating_point()
    ]
    model.to(dtype="float64")
    for layer, key, buffer in whole:
        layer._buffers[key] = buffer
    paddle.set_default_dtype("float64")
    tensors = {key: paddle.to_tensor(array) for key, array in arrays.items()}
    tensors = {key: value.astype("float64") if value.is_floating_point() else value for key, value in tensors.items()}
    with _no_float32(paddle):
        return _measured(pair, model, tensors, "paddle")


@contextlib.contextmanager
def _no_float32(paddle: Any) -> Iterator[None]:
    """Inside the block casts to float32, and ranges and constants in it, are float64."""
    single = paddle.float32

    def wide(function: Any) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            given = [paddle.float64 if isinstance(value, type(single)) and value == single else value for value in args]
            return function(*given, **kwargs)

        return called

    kernels = {name: getattr(paddle._C_ops, name) for name in ("cast", "arange", "full")}
    try:
        for name, kernel in kernels.items():
            setattr(paddle._C_ops, name, wide(kernel))
        yield
    finally:
        for name, kernel in kernels.items():
            setattr(paddle._C_ops, name, kernel)


def _in_order(model: Any, weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Parameters to parameters and statistics to statistics by their order; the weight of a Linear is transposed."""
    import paddle

    linear = {id(layer.weight) for layer in model.sublayers() if isinstance(layer, paddle.nn.Linear)}
    own = {"parameter": [], "mean": [], "variance": []}  # type: dict[str, list[Any]]
    for key, value in model.state_dict().items():
        kind = {"_mean": "mean", "_variance": "variance"}.get(key.rpartition(".")[2], "parameter")
        own[kind].append((key, value))
    given = {"parameter": [], "mean": [], "variance": []}  # type: dict[str, list[Any]]
    for key, array in weights.items():
        last = key.rpartition(".")[2]
        if last != "num_batches_tracked":
            given[{"running_mean": "mean", "running_var": "variance"}.get(last, "parameter")].append(array)
    found = {}
    for kind, entries in own.items():
        if len(entries) != len(given[kind]):
            raise ValueError(f"{len(given[kind])} arrays of kind {kind} in torch, {len(entries)} in paddle")
        for (key, value), array in zip(entries, given[kind], strict=True):
            shape = tuple(value.shape)
            array = array.T if id(value) in linear and array.ndim == 2 else array
            if array.size != value.size or (
                array.shape != shape and array.squeeze().shape != value.squeeze().numpy().shape
            ):
                raise ValueError(f"{key}: torch has {list(array.shape)} in its place, paddle {list(shape)}")
            found[key] = array.reshape(shape)
    return found


def _measured(pair: real_ports_pairs.Pair, model: Any, tensors: dict[str, Any], framework: str) -> dict[str, Any]:
    forward = pair.lines.get("forward")
    outputs = forward(model, tensors, framework) if forward else _called(model, tensors)
    real_ports_pairs.loss(outputs, framework).backward()
    found = {f"output.{i}": value.detach().numpy() for i, value in enumerate(real_ports_pairs.tensors(outputs))}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            found[f"gradient.{name}"] = parameter.grad.numpy()
    return found


def _called(model: Any, tensors: dict[str, Any]) -> Any:
    import inspect

    names = inspect.signature(model.forward).parameters
    known = all(name in names for name in tensors) or any(item.kind is item.VAR_KEYWORD for item in names.values())
    return model(**tensors) if known else model(*tensors.values())


if __name__ == "__main__":
    main(*sys.argv[1:])
