"""Tokens, recurrent layers, masks and shifts that go wrong."""

from collections.abc import Callable
from typing import Any

import numpy as np

from twinalign.planted_faults.case_contents import LayerFacts
from twinalign.planted_faults.catalogue import in_forward, in_weights
from twinalign.planted_faults.fault_sites import ModelSite, Original, through
from twinalign.planted_faults.where_to_plant import in_backward, layers, of_own_call, own_code


@in_forward(layers("Embedding"), "embedding_padding_zeroed")
def embedding_row_zeroed(site: ModelSite) -> None:
    """An embedding returns zeros for the first index, as paddle does for a padding index."""
    site.forward(lambda original, ids: original(ids) * (ids != 0).unsqueeze(-1).astype(site.layer.weight.dtype))


@in_backward(layers("Embedding"), "embedding_padding_gradient")
@through(ModelSite.forward)
def embedding_row_gets_no_gradient(site: ModelSite, original: Original, ids: Any) -> Any:
    """The first row of an embedding gets no gradient."""
    rows = original(ids)
    return site.paddle.where((ids == 0).unsqueeze(-1), rows.detach(), rows)


def _recurrent_weights(site: ModelSite, change: Callable[[str, np.ndarray], np.ndarray]) -> None:
    for name, parameter in site.layer.named_parameters():
        if "." not in name:
            value = parameter.numpy().copy()
            parameter.set_value(np.ascontiguousarray(change(name, value)).astype(value.dtype))


@in_weights(layers("GRU|LSTM"), "gate_order")
def gates_in_another_order(site: ModelSite) -> None:
    """The first two gates of a recurrent layer change places."""
    gates = 4 if type(site.layer).__name__ == "LSTM" else 3

    def exchange(name: str, value: np.ndarray) -> np.ndarray:
        first, second, *others = np.split(value, gates)
        return np.concatenate([second, first, *others])

    _recurrent_weights(site, exchange)


in_weights(layers("GRU|LSTM"), "recurrent_bias", id="recurrent_bias_not_loaded").add(
    "The second bias of a recurrent layer is left at zero",
    lambda site: _recurrent_weights(site, lambda name, value: value * 0 if name.startswith("bias_hh") else value),
)


@in_forward(layers("GRU|LSTM"), "recurrent_direction")
@through(ModelSite.forward)
def recurrent_layer_runs_backwards(site: ModelSite, original: Original, x: Any) -> Any:
    """A recurrent layer reads its sequence from the end."""
    outputs, states = original(x.flip([1]))
    return outputs.flip([1]), states


@in_forward(layers("GRU|LSTM"), "recurrent_batch_first")
@through(ModelSite.forward)
def recurrent_layer_swaps_batch_and_time(site: ModelSite, original: Original, x: Any) -> Any:
    """A recurrent layer takes the batch for the time."""
    outputs, states = original(x.transpose([1, 0, 2]))
    return outputs.transpose([1, 0, 2]), states


of_own_call("causal_mask_sees_one_further", "tril", "causal_mask_shifted").add(
    "A token sees its successor too", lambda original, x, diagonal=0, **_: original(x, diagonal + 1)
)
of_own_call("mask_inverted", "masked_fill", "mask_inverted").add(
    "A mask hides what it should show", lambda original, x, mask, value: original(x, ~mask, value)
)
of_own_call("mask_forgotten", "masked_fill", "mask_missing").add(
    "A mask is not applied", lambda original, x, mask, value: x * 1
)
of_own_call("mask_too_weak", "masked_fill", "mask_value").add(
    "Masked scores are -1, not next to minus infinity", lambda original, x, mask, value: original(x, mask, -1.0)
)
of_own_call("mask_added", "masked_fill", "mask_added_as_numbers").add(
    "A mask of truths is added to the scores", lambda original, x, mask, value: x + mask.astype(x.dtype)
)
of_own_call("rolled_the_other_way", "roll", "roll_direction").add(
    "A tensor is rolled the other way", lambda original, x, shifts, axis=None: original(x, -shifts, axis)
)
of_own_call("cumulative_sum_over_all", "cumsum", "cumulative_flattened").add(
    "A cumulative sum runs over the flattened tensor", lambda original, x, *_, **__: original(x).reshape(x.shape)
)


def _slices_tokens(facts: LayerFacts) -> bool:
    return len(facts.shape) == len(facts.returned) == 3 and facts.returned[1] == facts.shape[1] - 1


@in_forward(own_code("getitem", such=_slices_tokens), "slice_shifted")
def last_token_dropped_for_the_first(site: ModelSite) -> None:
    """A slice leaves out the last token, not the first."""
    site.first("getitem", lambda original, x, index: original(x, (slice(None), slice(None, -1))), lambda *_: True)


def _scales(facts: LayerFacts) -> bool:
    own = [parameter for parameter in facts.layer._parameters.values() if parameter is not None]
    return len(own) == 1 and facts.shape == facts.returned and own[0].shape == facts.shape[-1:]


of_own_call("layer_scale_forgotten", "multiply", "learned_factor_missing", such=_scales).add(
    "A learned scale is not applied", lambda original, x, scale: x * 1
)
of_own_call("layer_scale_relative_to_one", "multiply", "learned_factor_form", such=_scales).add(
    "A learned scale is taken relative to one", lambda original, x, scale: original(x, scale + 1.0)
)
