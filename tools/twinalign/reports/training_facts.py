"""Facts about a training in words, for terminal and report."""

from collections.abc import Iterator, Mapping
from typing import Any

from twinalign.reports.shown_values import figure

_MAIN_CURVES = ("loss", "gradient_norm", "ema_distance")


def main_horizons(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Horizons of the main curves of a training."""
    return [h for name in _MAIN_CURVES for h in found.get("horizons", ()) if h["curve"] == name]


def steps_alike(count: int, steps: int) -> str:
    """Steps for which two curves agree, marked as a lower bound if they never depart."""
    return str(count) if count < steps else f"≥ {count}"


def sentences(found: Mapping[str, Any]) -> Iterator[str]:
    """What is worth saying besides the horizons."""
    for outcome in found.get("outcomes", ()):
        yield f"{outcome['name'].removeprefix('outcome.')}: {outcome['reason']}"
    for first in found.get("first_to_part", ()):
        names = ", ".join(first["parameters"][:6])
        count = len(first["parameters"])
        more = f" and {count - 6} more" if count > 6 else ""
        yield (
            f"the sizes of {count} of {first['judged']} parameters depart first, at step {first['step']} in "
            f"{first['precision']}: {names}{more}"
        )
    switched = found.get("switched")
    if switched:
        other = "paddle" if switched["start"] == "ref" else "ref"
        yield (
            f"{switched['step']} steps on the {switched['start']} side and the rest on the {other} side: "
            f"{switched['verdict']}, {switched['reason']}"
        )
    swaps = found.get("swaps")
    if swaps:
        yield from _of_swaps(swaps)
    for side, speed in found.get("throughput", {}).items():
        if speed["images_a_second"]:
            yield f"{side}: {figure(speed['images_a_second'])} samples a second"


def _of_swaps(swaps: Mapping[str, Any]) -> Iterator[str]:
    if not swaps["without"]:
        yield "swaps: the first steps agree in float64 without any swap; there is no difference to remove"
        return
    for swap, removes in swaps["removes"].items():
        left = ", ".join(f"{name} from step {step}" for name, step in swaps["left"][swap].items())
        yield f"--swap {swap}: " + ("removes the difference" if removes else f"leaves it ({left})")
    if swaps["text"]:
        yield f"at fault: {swaps['text']}"
