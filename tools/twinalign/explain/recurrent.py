"""Faults of LSTM, GRU and simple recurrent layers: order of gates, biases, directions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from twinalign.explain.calls import Call, Change, Site
from twinalign.explain.registry import register
from twinalign.explain.rewrite import Rewrite, any_of, joined, stored
from twinalign.explain.subject import LayerSubject

_FUNCTIONS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_GATES = {"lstm": ("input", "forget", "cell", "output"), "gru": ("reset", "update", "new")}


@register
class GateOrder(Rewrite):
    """Frameworks stack i, f, g, o and r, z, n in different orders."""

    id = "gate_order"
    phase = "forward"
    text = "the gates are stacked in another order"
    functions = ("lstm", "gru")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Every other order."""
        names = _GATES[site.name]
        for order in list(itertools.permutations(range(len(names))))[1:]:
            detail = ", ".join(names[at] for at in order)
            yield detail, _gates(order, in_code=False)
            if subject.backward:
                yield joined(detail, "in the code"), _gates(order, in_code=True)


def _gates(order: Sequence[int], in_code: bool) -> Change:
    def change(call: Call) -> Any:
        change_weight = _values(call, order) if in_code else stored(_values(call, order))
        return call.run(weights=[change_weight(weight) for weight in call["weights"]])

    return change


def _values(call: Call, order: Sequence[int]) -> Any:
    def reordered(weight: Any) -> Any:
        blocks = weight.chunk(len(order))
        return call.torch.cat([blocks[at] for at in order])

    return reordered


def _biases(call: Call, which: Sequence[int], factor: float) -> list[Any]:
    """The weights of a call with some of its vectors scaled: 0 is the input's bias, 1 the recurrent one."""
    seen = 0
    weights = []
    for weight in call["weights"]:
        if weight.dim() == 1:
            weight = weight * factor if seen % 2 in which else weight
            seen += 1
        weights.append(weight)
    return weights


@register
class RecurrentBias(Rewrite):
    """Torch has two biases for each gate, other code one."""

    id = "recurrent_bias"
    phase = "forward"
    text = "one of the two biases of the gates is missing or doubled"
    functions = _FUNCTIONS
    ways = any_of(
        {
            "the recurrent one is missing": lambda call: call.run(weights=_biases(call, (1,), 0.0)),
            "the input's is missing": lambda call: call.run(weights=_biases(call, (0,), 0.0)),
            "both are missing": lambda call: call.run(weights=_biases(call, (0, 1), 0.0)),
            "the recurrent one is doubled": lambda call: call.run(weights=_biases(call, (1,), 2.0)),
            "the input's is doubled": lambda call: call.run(weights=_biases(call, (0,), 2.0)),
            "both are doubled": lambda call: call.run(weights=_biases(call, (0, 1), 2.0)),
        }
    )


@register
class RecurrentDirection(Rewrite):
    """Of two directions the second may run forwards, or the sequence backwards."""

    id = "recurrent_direction"
    phase = "forward"
    text = "the sequence runs the other way"
    functions = _FUNCTIONS

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Backwards in, backwards out; and the outputs left as they come."""
        axis = 1 if site.get("batch_first", False) else 0
        yield "", _reversed_sequence(axis, back=True)
        yield "and its outputs stay in that order", _reversed_sequence(axis, back=False)


def _reversed_sequence(axis: int, back: bool) -> Change:
    def change(call: Call) -> Any:
        outputs, *states = call.run(input=call["input"].flip(axis))
        return (outputs.flip(axis) if back else outputs, *states)

    return change


@register
class RecurrentLayout(Rewrite):
    """[batch, time, width] for [time, batch, width]: silent where both are equal or the result is only read."""

    id = "recurrent_batch_first"
    phase = "forward"
    text = "batch and time are swapped"
    functions = _FUNCTIONS

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """The other layout, with states of zeros for its batch."""
        yield "", _other_layout


def _other_layout(call: Call) -> Any:
    batch_first = not call.get("batch_first", False)
    batch = call["input"].shape[0 if batch_first else 1]
    states = [
        state[:, :1].expand(-1, batch, -1) * 0.0 for state in (call["hx"] if call.name == "lstm" else [call["hx"]])
    ]
    return call.run(batch_first=batch_first, hx=states if call.name == "lstm" else states[0])


@register
class GruResetPlace(Rewrite):
    """The reset gate on the state before the matrix, not on the product."""

    id = "gru_reset_before"
    phase = "forward"
    text = "the GRU's reset gate acts before the recurrent matrix, not after it"
    functions = ("gru",)
    ways = any_of({"": lambda call: _reset_before(call)})


def _reset_before(call: Call) -> Any:
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
