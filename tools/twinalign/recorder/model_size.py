"""Parameters, buffers and operations of a side's model, layer by layer."""

import math
from typing import Any

from twinalign.backends.layer_classes import full_name
from twinalign.backends.protocol import Backend
from twinalign.recorder.worker import Worker
from twinalign.stages.context import step_inputs


def model_size(worker: Worker) -> dict[str, Any]:
    """Layer by path (`""`: the model) -> class, and elements and operations of it and of all below it.

    The operations are those of one `Case.forward` on the case's inputs, in evaluation mode unless the case has
    `train_mode`; a tensor that layers share counts once in each of them, and once in the model.
    """
    case, backend = worker.fresh_case("forward"), worker.backend
    model = worker.construct(case)
    backend.set_training(model, case.train_mode)
    arrays = step_inputs(case)
    inputs = {name: backend.to_tensor(array, "float32", worker.device) for name, array in arrays.items()}
    model = backend.prepare_model(model, "float32", worker.device)
    with backend.no_grad(), backend.counting_flops(model) as flops:
        case.forward(model, inputs, worker.framework)
    layers = {
        path: {"class": full_name(type(layer)), **_counts(backend, layer), "flops": flops.get(path, 0)}
        for path, layer in backend.named_layers(model)
    }
    return {"layers": layers, "inputs": {name: list(array.shape) for name, array in arrays.items()}}


def _counts(backend: Backend, layer: Any) -> dict[str, int]:
    """Elements of parameters, and of what else the layer keeps, which paddle holds as parameters too."""
    parameters = {id(tensor): tensor for tensor in backend.named_parameters(layer).values()}
    kept = {
        id(tensor): tensor
        for below in backend.all_layers(layer)
        for name, tensor in backend.own_state(below).items()
        if name != "num_batches_tracked"  # paddle's batch norm counts no batches
    }
    buffers = [tensor for key, tensor in kept.items() if key not in parameters]
    return {"parameters": sum(map(_size, parameters.values())), "buffers": sum(map(_size, buffers))}


def _size(tensor: Any) -> int:
    return math.prod(int(length) for length in tensor.shape)
