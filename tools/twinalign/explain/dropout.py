"""Faults of dropout that do not depend on its draws."""

from __future__ import annotations

from collections.abc import Iterator

from twinalign.explain.calls import Change, Site
from twinalign.explain.registry import register
from twinalign.explain.rewrite import Rewrite
from twinalign.explain.subject import LayerSubject

DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")


@register
class DropoutMode(Rewrite):
    """downscale_in_infer of old paddle code scales in evaluation, not in training."""

    id = "dropout_mode"
    phase = "forward"
    text = "dropout scales at the other time (downscale_in_infer)"
    difference = "dropout_mode"
    functions = DROPOUTS

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """By the share that is kept."""
        own = subject.port_numbers.get("p")
        for p in dict.fromkeys((site.get("p", 0.5), *(() if own is None else (own,)))):
            yield f"by 1 - {p:g}", _scaled(1.0 - p)


def _scaled(share: float) -> Change:
    return lambda call: call.result * share


@register
class DropoutRate(Rewrite):
    """Where everything or nothing is dropped, and where a mask of the reference can be told from the port's scale."""

    id = "dropout_off"
    phase = "forward"
    text = "dropout does not drop"
    functions = DROPOUTS

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """The input as it is, in training."""
        if site.get("training", True) and site.get("p", 0.5) > 0.0:
            yield "", lambda call: call["input"]
