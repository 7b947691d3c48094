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
