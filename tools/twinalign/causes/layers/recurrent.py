"""Faults of LSTM, GRU and simple recurrent layers: order of gates, biases, directions."""

import functools
import itertools
from collections.abc import Sequence
from typing import Any

from twinalign.backends.torch.reference_only.operations import FunctionCall, Site
from twinalign.backends.torch.reference_only.signatures import RECURRENT
from twinalign.causes.layers.changed_calls import Changes, as_change, enter_edits, forward, joined
from twinalign.causes.layers.linear import both_ways
from twinalign.causes.layers.subject import LayerSubject
from twinalign.causes.layers.ways import made

_GATES = {"lstm": ("input", "forget", "cell", "output"), "gru": ("reset", "update", "new")}


@forward("lstm", "gru")
def gate_order(site: Site, subject: LayerSubject) -> Changes:
    """The gates are stacked in another order."""
    # Frameworks stack the gates i, f, g, o (LSTM) and r, z, n (GRU) in different orders.
    names = _GATES[site.name]
    for order in list(itertools.permutations(range(len(names))))[1:]:
        in_order = functools.partial(lambda to, w: w.unflatten(0, (len(to), -1))[list(to)].flatten(0, 1), order)
        for detail, change in both_ways(subject, in_order, "weights"):
            yield joined(", ".join(names[at] for at in order), detail), change


@as_change
def _biases_scaled(call: FunctionCall, which: Sequence[int], factor: float) -> Any:
    """The call with some of the vectors among its weights scaled: 0 is the input's bias, 1 the recurrent one."""
    weights = list(call["weights"])
    vectors = [at for at, weight in enumerate(weights) if weight.dim() == 1]
    for number, at in enumerate(vectors):
        if number % 2 in which:
            weights[at] = weights[at] * factor
    return call.run(weights=weights)


@as_change
def _reversed_sequence(call: FunctionCall, back: bool) -> Any:
    axis = 1 if call.get("batch_first", False) else 0
    outputs, *states = call.run(input=call["input"].flip(axis))
    return (outputs.flip(axis) if back else outputs, *states)


def _other_layout(call: FunctionCall) -> Any:
    batch_first = not call.get("batch_first", False)
    batch = call["input"].shape[0 if batch_first else 1]

    def zeros(state: Any) -> Any:
        return state[:, :1].expand(-1, batch, -1) * 0.0

    states = [zeros(state) for state in call["hx"]] if call.name == "lstm" else zeros(call["hx"])
    return call.run(batch_first=batch_first, hx=states)


@forward("gru")
def gru_reset_before(call: FunctionCall) -> Any:
    """The GRU's reset gate acts before the recurrent matrix, not after it."""
    torch, weights = call.torch, call["weights"]
    if call["num_layers"] != 1 or call["bidirectional"] or len(weights) != 4:
        raise ValueError("more than one layer")
    w_input, w_state, b_input, b_state = weights
    x = call["input"].transpose(0, 1) if call.get("batch_first", False) else call["input"]
    state, outputs = call["hx"][0], []
    reset_w, update_w, new_w = w_state.chunk(3)
    reset_b, update_b, new_b = b_state.chunk(3)
    for step in x:
        reset_x, update_x, new_x = torch.nn.functional.linear(step, w_input, b_input).chunk(3, -1)
        reset = torch.sigmoid(reset_x + state @ reset_w.T + reset_b)
        update = torch.sigmoid(update_x + state @ update_w.T + update_b)
        new = torch.tanh(new_x + (reset * state) @ new_w.T + new_b)
        state = (1.0 - update) * new + update * state
        outputs.append(state)
    found = torch.stack(outputs)
    return found.transpose(0, 1) if call.get("batch_first", False) else found, state[None]


enter_edits("forward", (
    # Torch has two biases for each gate, other code has one.
    ("recurrent_bias", "one of the two biases of the gates is missing or doubled", RECURRENT,
     made({f"{which} {verb}": _biases_scaled(places, factor) for verb, factor in (("missing", 0.0), ("doubled", 2.0))
           for which, places in (("the recurrent one is", (1,)), ("the input's is", (0,)), ("both are", (0, 1)))}), {}),
    # Of two directions the second may run forwards, or the sequence backwards.
    ("recurrent_direction", "the sequence runs the other way", RECURRENT,
     made({"": _reversed_sequence(back=True), "and its outputs stay in that order": _reversed_sequence(back=False)}),
     {}),
    # [batch, time, width] for [time, batch, width] raises nothing where both sizes are equal.
    ("recurrent_batch_first", "batch and time are swapped", RECURRENT, made({"": _other_layout}), {}),
))  # fmt: skip
