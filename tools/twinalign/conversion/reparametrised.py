"""Weight norm and spectral norm: each framework stores such a weight as several tensors, in several ways."""

import dataclasses

from twinalign.backends.state_layout import Layer, StateEntry
from twinalign.conversion import layer_rules, storage
from twinalign.conversion.storage import Slot, Stored, find_rule

# Stored names of (magnitude, direction) and of (matrix, left and right singular vector), `{}` being the weight's name.
_WEIGHT_NORM = (("{}_g", "{}_v"), ("parametrizations.{}.original0", "parametrizations.{}.original1"))
_SPECTRAL_NORM = (
    ("{}_orig", "{}_u", "{}_v"),
    ("parametrizations.{}.original", "parametrizations.{}.0._u", "parametrizations.{}.0._v"),
)


def storage_of(framework: str, layer: Layer) -> list[Stored]:
    """How every tensor of the layer is stored: by its class's rule, corrected for normalised weights and by evidence.

    Tensors that the rule does not mention are stored unchanged.
    """
    parts = _weight_parts(layer)
    replaced = {whole.key: weight for weight, (whole, _) in parts.items()}
    extras = {entry.key for _, others in parts.values() for _, entry in others}
    plain = Layer(
        layer.path,
        layer.bases,
        [
            dataclasses.replace(entry, key=_key(layer, replaced[entry.key])) if entry.key in replaced else entry
            for entry in layer.entries
            if entry.key not in extras
        ],
        layer.config,
    )
    rule = find_rule(framework, layer.bases)
    stored = _with_evidence(plain, rule.rule(plain) if rule is not None else layer_rules.raw(framework, plain))
    mentioned = {part.entry.key for part in stored}
    stored += [part for part in layer_rules.raw(framework, plain) if part.entry.key not in mentioned]
    return _restore_parts(layer, stored, parts)


def _key(layer: Layer, name: str) -> str:
    return f"{layer.path}.{name}" if layer.path else name


def _weight_parts(layer: Layer) -> dict[str, tuple[StateEntry, list[tuple[str, StateEntry]]]]:
    """Name of each normalised weight → the entry with the weight's shape, and (slot suffix, entry) of the others."""
    entries = {layer.local_name(entry): entry for entry in layer.entries}
    found = {}
    for weight in layer.config.get("spectral_norm", {}):
        for names in _SPECTRAL_NORM:
            whole, left, right = (entries.get(name.format(weight)) for name in names)
            if whole and left and right:
                found[weight] = (whole, [("left singular vector", left), ("right singular vector", right)])
    for weight in layer.config.get("weight_norm", {}):
        for pair in _WEIGHT_NORM:
            magnitude, direction = (entries.get(name.format(weight)) for name in pair)
            if magnitude and direction:
                found[weight] = (direction, [("magnitude", magnitude)])
    return found


def _restore_parts(
    layer: Layer, stored: list[Stored], parts: dict[str, tuple[StateEntry, list[tuple[str, StateEntry]]]]
) -> list[Stored]:
    """Put the real entries back in place of the plain weight, and add the norm's other tensors."""
    by_key = {_key(layer, weight): weight for weight in parts}
    result: list[Stored] = []
    for part in stored:
        weight = by_key.get(part.entry.key)
        if weight is None:
            result.append(part)
            continue
        whole, others = parts[weight]
        norms = "weight_norm" if weight in layer.config.get("weight_norm", {}) else "spectral_norm"
        axis = _canonical_axis(layer.config[norms][weight], part, others)
        kept = "direction" if norms == "weight_norm" else "matrix"
        slots = tuple(dataclasses.replace(slot, name=f"{slot.name}.{kept}") for slot in part.slots)
        result.append(dataclasses.replace(part, entry=whole, slots=slots))
        for suffix, entry in others:
            # The vector's meaning depends on the axis, so the axis is part of the slot's name.
            slot = Slot(f"{weight}.{suffix} ({axis})", entry.shape)
            result.append(Stored(entry, (slot,)))
    return result


def _canonical_axis(axis: int | None, part: Stored, others: list[tuple[str, StateEntry]]) -> str:
    """The canonical weight's axis along which the norm is taken, in words that both sides share."""
    if others[0][0] == "magnitude" and not others[0][1].shape:
        return "norm of the whole"
    axis = 0 if axis is None else axis % max(len(part.entry.shape), 1)
    return f"norm along axis {1 - axis if part.transposed else axis}"


def _with_evidence(layer: Layer, stored: list[Stored]) -> list[Stored]:
    """Correct a matrix's layout if running the layer alone has shown it (`weight_layout`)."""
    evidence = layer.config.get("weight_layout")
    if not evidence and storage.is_own_linear(layer):
        # Derived from Linear, yet it computes something else: how it keeps its matrix is not known.
        return [dataclasses.replace(part, proven=part.proven and len(part.entry.shape) != 2) for part in stored]
    if not evidence:
        return stored
    corrected = []
    for part in stored:
        layout = evidence.get(layer.local_name(part.entry))
        if layout is None or len(part.slots) != 1:
            corrected.append(part)
            continue
        transposed = layout == "in_out"
        shape = part.entry.shape[::-1] if transposed else part.entry.shape
        slot = dataclasses.replace(part.slots[0], shape=shape)
        corrected.append(dataclasses.replace(part, slots=(slot,), transposed=transposed, proven=True))
    return corrected
