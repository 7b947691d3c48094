"""The report's plots. matplotlib is imported when the first one is drawn."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, cast

from twinalign.reports.language import Language
from twinalign.reports.shown_values import figure, legible, number
from twinalign.reports.svg import ROLES, page_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from twinalign.reports.curves import Curve
    from twinalign.reports.layer_tree import LayerDepth

_WIDTH = 4.4
_VERDICTS = ("aligned", "rounding", "inconclusive", "diverged")
_FEWEST = 8
"""Fewest tensors for a histogram or a curve along depth; for fewer, the table is enough."""
_SMALLEST = 1e-100
_LINEAR = 100
"""Most tensors for a histogram with linear heights; for more, a logarithmic scale keeps single ones visible."""
_MANY = 1500
"""Most points of a line along depth; of more, the greatest of each stretch is drawn."""
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "twinalign",
    "text.parse_math": False,
    "font.size": 9,
    "text.color": ROLES["ink"],
    "axes.edgecolor": ROLES["line"],
    "axes.labelcolor": ROLES["dim"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.unicode_minus": False,
    "grid.color": ROLES["line"],
    "grid.linewidth": 0.5,
    "xtick.color": ROLES["line"],
    "ytick.color": ROLES["line"],
    "xtick.labelcolor": ROLES["dim"],
    "ytick.labelcolor": ROLES["dim"],
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.4,
}


@dataclasses.dataclass(frozen=True)
class Plot:
    """A plot for the page: the picture, its name, and what it shows in words."""

    svg: str
    title: str
    text: str


_GRADIENTS = ("step0.gradient.", "rank0.step0.gradient.")
"""The first of several ranks stands for all."""


_style_of_page: list[ExitStack] = []
"""Holds the style of the page that is being drawn; empty until its first plot needs matplotlib."""


@contextmanager
def plotting() -> Iterator[None]:
    """Draw in the report's style inside the block, whatever matplotlib settings the user has."""
    try:
        yield
    finally:
        while _style_of_page:
            _style_of_page.pop().close()


def _empty_figure(height: float) -> Figure:
    import logging

    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # no warnings about fonts or a read-only home

    import matplotlib
    from matplotlib.figure import Figure

    if not _style_of_page:
        style = ExitStack()
        style.enter_context(matplotlib.rc_context())
        _style_of_page.append(style)
        matplotlib.rcdefaults()
        cast(Any, matplotlib.rcParams).update(_STYLE)
    return Figure(figsize=(_WIDTH, height))


def stage_plots(stage: str, tensors: Sequence[Mapping[str, Any]], say: Language) -> list[Plot]:
    """Histograms of a stage's errors, and error against noise floor along depth, if there are enough tensors."""
    found = [
        _histogram(stage, tensors, "fp64_rel", "float64", say),
        _histogram(stage, tensors, "noise_ratio", "noise", say),
        _depth(stage, tensors, say),
    ]
    return [plot for plot in found if plot is not None]


def _histogram(stage: str, tensors: Sequence[Mapping[str, Any]], key: str, name: str, say: Language) -> Plot | None:
    by_verdict: dict[str, list[float]] = {}
    known: list[float] = []
    zeros = 0
    for tensor in tensors:
        value = number(tensor.get(key))
        if value is not None and value > 0:
            by_verdict.setdefault(tensor["verdict"], []).append(math.log10(_drawable(value)))
            known.append(value)
        zeros += value == 0
    if len(known) < _FEWEST:
        return None
    values = sorted(math.log10(_drawable(value)) for value in known)
    drawn, axes = _figure(2.3)
    groups = [verdict for verdict in _VERDICTS if verdict in by_verdict]
    low, high = values[0], values[-1]
    axes.hist(
        [by_verdict[verdict] for verdict in groups],
        bins=min(40, max(8, len(values) // 4)),
        range=(low, high) if high - low > 0.5 else (low - 0.25, high + 0.25),
        stacked=True,
        color=[ROLES[verdict] for verdict in groups],
        label=[say.known("verdict", verdict) for verdict in groups],
    )
    if len(values) > _LINEAR:
        axes.set_yscale("symlog", linthresh=10)
    else:
        axes.locator_params(axis="y", integer=True)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0f}")
    axes.grid(axis="x", visible=False)
    if key == "noise_ratio":
        axes.axvline(0, color=ROLES["ink"], linewidth=1, linestyle=":")
    axes.locator_params(axis="x", nbins=6, steps=[1, 2, 5, 10], integer=high - low > 2)
    axes.xaxis.set_major_formatter(lambda value, _: _power_of_ten(value))
    axes.set_xlabel(say(f"plot.{name}_axis"))
    axes.set_ylabel(say("plot.tensors_axis"))
    if len(groups) > 1:
        _legend_above(axes)
    known.sort()
    limits = {"low": known[0], "high": known[-1], "middle": known[len(known) // 2]}
    text = say(f"plot.{name}_text", count=len(known), zeros=zeros, **{k: figure(v) for k, v in limits.items()})
    title = say(f"plot.{name}_title", stage=say.known("stage", stage))
    return _finish(drawn, f"{stage}-{name}", title, text)


def _depth(stage: str, tensors: Sequence[Mapping[str, Any]], say: Language) -> Plot | None:
    gradients = [tensor for tensor in tensors if tensor["name"].startswith(_GRADIENTS)]
    errors, floors = [], []
    for tensor in gradients or tensors:
        floor, ratio, scale = (number(tensor.get(key)) for key in ("floor_rms", "noise_ratio", "reference_max"))
        if floor and ratio and scale and not tensor["name"].endswith(" (projections)"):
            errors.append(_drawable(floor * (ratio / scale)))
            floors.append(_drawable(floor / scale))
    if len(errors) < _FEWEST:
        return None
    drawn, axes = _figure(2.3)
    for values, role, style in ((floors, "reference", "-"), (errors, "port", "--")):
        positions, shown = _thinned(values)
        axes.plot(positions, shown, style, color=ROLES[role], label=say(f"side.{role}"))
    _along_depth(axes, "depth", say)
    of_errors = {"low": figure(min(errors)), "high": figure(max(errors))}
    of_floors = {"floor_low": figure(min(floors)), "floor_high": figure(max(floors))}
    text = say("plot.depth_text", count=len(errors), **of_errors, **of_floors)
    title = say("plot.depth_gradients" if gradients else "plot.depth_title", stage=say.known("stage", stage))
    return _finish(drawn, f"{stage}-depth", title, text)


def _along_depth(axes: Axes, name: str, say: Language) -> None:
    axes.set_yscale("log")
    axes.locator_params(axis="x", integer=True)
    axes.set_xlabel(say(f"plot.{name}_axis"))
    axes.set_ylabel(say(f"plot.{name}_relative"))
    _legend_above(axes)


def inherited_plot(depth: LayerDepth, say: Language) -> Plot | None:
    """The error of each layer's output along depth, the wrong layers marked."""
    errors = [_drawable(error) if error and error > 0 else None for error in depth.errors]
    known = [error for error in errors if error is not None]
    if len(known) < _FEWEST:
        return None
    drawn, axes = _figure(2.3)
    drawable = [error or math.nan for error in errors]
    axes.plot(range(len(errors)), drawable, color=ROLES["port"], label=say("plot.inherited_error"))
    wrong = [(place, errors[place] or min(known)) for place in depth.wrong]
    if wrong:
        positions, heights = zip(*wrong, strict=True)
        axes.plot(positions, heights, "X", markersize=8, color=ROLES["diverged"], label=say("plot.inherited_wrong"))
    _along_depth(axes, "inherited", say)
    own = say("faults.own_code")
    names = say("header.comma").join(legible(depth.names[place], 80) or own for place in depth.wrong[:8]) or "–"
    text = say("plot.inherited_text", count=len(errors), high=figure(max(known)), names=names)
    return _finish(drawn, f"layers-{depth.number}", say("plot.inherited_title", part=legible(depth.part)), text)


def curve_plot(curve: Curve, identifier: str, say: Language) -> Plot:
    """Both sides of a curve in one plot, and below it their difference with the noise."""
    same = not any(curve.differences)
    drawn, axes, below = _curve_axes(same)
    reference, port = ([_drawable(value) for value in side] for side in (curve.reference, curve.port))
    # The reference is broad, so that it stays visible below an equal port.
    broad: dict[str, Any] = {"linewidth": 3, "alpha": 0.6}
    axes.plot(curve.steps, reference, color=ROLES["reference"], label=say("side.reference"), **broad)
    axes.plot(curve.steps, port, "--", color=ROLES["port"], label=say("side.port"), **_points(curve))
    if curve.switched is not None:
        crossing = [_drawable(value) for value in curve.switched]
        axes.plot(curve.steps, crossing, ":", color=ROLES["ink"], label=say("plot.switched"))
    if below is not None and any(curve.noise or ()):
        axes.fill([], [], color=ROLES["noise"], label=say("plot.noise_band"))
    _legend_above(axes)
    text = say(
        "plot.curve_text",
        count=len(curve.steps),
        **{
            f"{side}_{end}": figure(values[place])
            for side, values in (("reference", curve.reference), ("port", curve.port))
            for end, place in (("first", 0), ("last", -1))
        },
    )
    if below is None:
        text += " " + say("plot.curve_same")
    else:
        _differences(below, curve)
        worst = max(range(len(curve.steps)), key=lambda place: curve.differences[place] or 0)
        text += " " + say("plot.curve_difference", difference=figure(curve.differences[worst]), step=curve.steps[worst])
        below.set_ylabel(say("plot.difference_axis"))
    noise = [value for value in curve.noise or () if value]
    if noise:
        text += " " + say("plot.curve_noise", noise=figure(max(noise)))
    if (leaves := curve.leaves) is not None:
        text += " " + say("plot.curve_leaves", step=leaves[0], ratio=figure(leaves[1]))
    if curve.switched is not None:
        text += " " + say("plot.curve_switched")
    if curve.verdict:
        text += " " + say(
            "plot.curve_verdict", verdict=say.known("verdict", curve.verdict), reason=say.translated(curve.reason)
        )
    lowest = below or axes
    lowest.set_xlabel(say("plot.step_axis"))
    lowest.locator_params(axis="x", integer=True)
    title = f"{say.known('stage', curve.stage)}: {legible(curve.name, 80)}"
    return _finish(drawn, identifier, title, text)


def _differences(axes: Axes, curve: Curve) -> None:
    shown = [_drawable(value) if value else math.nan for value in curve.differences]
    noise = [_drawable(value) if value else math.nan for value in curve.noise or ()]
    finite = [value for value in (*shown, *noise) if math.isfinite(value)]
    bottom = min(finite, default=1e-12) / 3
    axes.set_yscale("log")
    if noise:
        axes.fill_between(curve.steps, bottom, noise, color=ROLES["noise"], linewidth=0)
        if len(noise) < 3:
            axes.plot(curve.steps, noise, "_", markersize=14, color=ROLES["dim"])
    axes.plot(curve.steps, shown, color=ROLES["ink"], linewidth=1.1, **_points(curve))
    if (leaves := curve.leaves) is not None:
        place = curve.steps.index(leaves[0])
        axes.plot(leaves[:1], shown[place : place + 1], "o", markersize=7, fillstyle="none", color=ROLES["diverged"])
    axes.set_ylim(bottom=bottom)


def _curve_axes(same: bool) -> tuple[Figure, Axes, Axes | None]:
    if same:
        drawn, axes = _figure(2.3)
        return drawn, axes, None
    drawn = _empty_figure(3.4)
    # Fixed margins: computing a layout takes as long as drawing.
    drawn.subplots_adjust(left=0.16, right=0.97, bottom=0.14, top=0.92, hspace=0.15)
    upper, lower = drawn.subplots(2, 1, sharex=True)
    return drawn, upper, lower


def _drawable(value: float) -> float:
    """A number clipped to a range that axes can show; the text beside a plot has the exact one."""
    size = min(max(abs(value), _SMALLEST), 1 / _SMALLEST)
    return math.copysign(size, value) if value else 0.0


def _power_of_ten(exponent: float) -> str:
    if -2 < exponent < 5:
        return f"{float(f'{10**exponent:.2g}'):g}"
    digits, _, power = f"{10**exponent:.0e}".partition("e")
    return f"{digits}e{int(power)}"


def _points(curve: Curve) -> dict[str, Any]:
    return {"marker": ".", "markersize": 6} if len(curve.steps) < 20 else {}


def _thinned(values: Sequence[float]) -> tuple[list[int], list[float]]:
    """Positions and values of at most `_MANY` points: the greatest of each stretch."""
    stretch = -(-len(values) // _MANY)
    positions = [
        max(range(start, min(start + stretch, len(values))), key=values.__getitem__)
        for start in range(0, len(values), stretch)
    ]
    return positions, [values[place] for place in positions]


def _figure(height: float) -> tuple[Figure, Axes]:
    drawn = _empty_figure(height)
    drawn.subplots_adjust(left=0.16, right=0.95, bottom=0.2, top=0.89)
    return drawn, drawn.subplots()


def _legend_above(axes: Axes) -> None:
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0, ncols=4, columnspacing=1)


def _finish(drawn: Figure, identifier: str, title: str, text: str) -> Plot:
    from matplotlib.ticker import LogLocator

    for axes in drawn.axes:
        axes.minorticks_off()
        if axes.get_yscale() == "log":
            axes.yaxis.set_major_formatter(lambda value, _: f"1e{math.log10(value):.0f}")
            axes.yaxis.set_major_locator(LogLocator(numticks=6))
    return Plot(page_svg(drawn, f"plot-{identifier}", title, text), title, text)
