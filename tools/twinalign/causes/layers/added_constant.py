"""A number that is added or subtracted and has another value in the port: read off the port's values, then proven."""

from collections.abc import Iterator, Sequence

import numpy as np

from twinalign.backends.torch.reference_only.operations import Site
from twinalign.causes.layers.changed_calls import forward, place_of
from twinalign.causes.layers.explaining import NAMES_OF_PHASE
from twinalign.causes.layers.generic import constant_of, is_written, with_constant
from twinalign.causes.layers.subject import CallVariant, LayerSubject

_FUNCTIONS = ("add", "sub")
_MOST_PLACES = 12
_MOST_STEPS = 12
_FEW = 8
"""So few values do not tell the place of a number as well as the number: then it must be one of two digits."""


@forward(rank=4, float32_constants=True)
def added_constant(subject: LayerSubject) -> Iterator[CallVariant]:
    """A constant that is added or subtracted has another value."""
    # For example the smoothing of a Dice loss, an offset, the 1 of `1 - x`.
    found: dict[tuple[str, float], list[Site]] = {}
    for site in subject.named(*_FUNCTIONS):
        number = constant_of(site)
        if number is not None:
            found.setdefault((site.name, number), []).append(site)
    alone = [(number, [site]) for (_, number), sites in found.items() for site in sites]
    together = [(number, sites) for (_, number), sites in found.items() if len(sites) > 1]
    for number, sites in [*together, *alone][:_MOST_PLACES]:
        value = _read_off(subject, sites, number)
        if value is None:
            continue
        calls = subject.named(sites[0].name)
        places = dict.fromkeys(place_of(site, calls) for site in sites)
        detail = f"{value:.6g} in place of {number:.6g}, {' and '.join(places)}"
        yield subject.variant(detail, {site.key: with_constant(value) for site in sites})


def _read_off(subject: LayerSubject, sites: Sequence[Site], number: float) -> float | None:
    """The number with which the worst of the wrong values becomes the port's (Gauss-Newton); None where none does."""
    name = _worst(subject)
    if name is None:
        return None
    port = np.asarray(subject.port[name], dtype=np.float64)

    def remaining(value: float) -> np.ndarray:
        variant = subject.variant("", {site.key: with_constant(value) for site in sites})
        return (np.asarray(subject.run(variant)[name], dtype=np.float64) - port).ravel()

    value, before = number, np.ravel(subject.reference[name] - port)
    for _ in range(_MOST_STEPS):
        step = 1e-4 * (abs(value) or 1.0)
        try:
            slope = (remaining(value + step) - before) / step
            if not float(slope @ slope) > 0.0:
                return None
            change = -float(slope @ before) / float(slope @ slope)
            after = remaining(value + change)
        except Exception:  # the unit does not run with such a number: then it is not the port's
            return None
        if not np.linalg.norm(after) < 0.5 * np.linalg.norm(before):
            break
        value, before = value + change, after
    return value if value != number and is_written(value, 2 if port.size < _FEW else 4) else None


def _worst(subject: LayerSubject) -> str | None:
    """The name of the value that differs most, for its size."""
    shares: dict[str, float] = {}
    for name, theirs in subject.reference.items():
        ours = subject.port.get(name)
        if not name.startswith(NAMES_OF_PHASE[subject.unit.phase]) or ours is None or ours.shape != theirs.shape:
            continue
        size = max(np.abs(theirs).max(initial=0.0), np.abs(ours).max(initial=0.0))
        share = np.abs(ours - theirs).max(initial=0.0) / size if size else 0.0
        if np.isfinite(share) and share:
            shares[name] = float(share)
    return max(shares, key=lambda name: shares[name]) if shares else None
