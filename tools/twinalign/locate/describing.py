"""What is known of a fault, in words: for the terminal and for the report, from the JSON form alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from twinalign.figures import figure

_SHOWN = 4
PATHS_OF_IMAGES = "both images: "
"""How the fact begins that says where pictures lie on the machine of the run."""


def layer_values(fault: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The values of a wrong layer by name, each with its relative difference; none of another part."""
    values = fault["evidence"].get("values")
    if not isinstance(values, Mapping):
        return {}
    return {name: v for name, v in values.items() if isinstance(v, Mapping) and "relative" in v}


def layer_class(fault: Mapping[str, Any]) -> str:
    """Name of the class of a wrong layer in the port; empty where what is wrong is no layer, or code of the case."""
    path = str(fault["evidence"].get("paddle_class", ""))
    return "" if path.startswith("(") else path.rpartition(".")[2]


def facts(fault: Mapping[str, Any]) -> list[str]:
    """What is known beside the cause, a line each."""
    evidence = fault["evidence"]
    describe = {"optimizer": _of_steps, "data": _of_data, "metric": _of_metric, "train": _of_steps}.get(fault["phase"])
    lines = [f"differs in {evidence['where']}"] if evidence.get("where") else []
    lines += _of_lines(evidence["inside"]) if evidence.get("inside") else []
    return lines + (describe(evidence) if describe else []) + [str(note) for note in evidence.get("notes", [])]


def some(names: Sequence[str]) -> str:
    """The first few of many names, and how many more there are."""
    shown = ", ".join(map(str, names[:_SHOWN]))
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown


def _of_lines(inside: Mapping[str, Any]) -> list[str]:
    """Where in a module's own code the wrong values begin."""
    lines = [f"first value that the reference has nowhere: {_line(inside['unknown'])}"]
    return lines + ([f"last value before it that both have: {_line(inside['known'])}"] if inside["known"] else [])


def _line(step: Mapping[str, Any]) -> str:
    what = f"`{step['name']}`" if step["name"] else "what is returned"
    return f"{what} in line {step['line']} of {step['file']}: {step['source']}"


def _of_steps(evidence: Mapping[str, Any]) -> list[str]:
    if "parameters" not in evidence:
        return [
            f"{name} differs from step {value['first_step']} on: {_numbers(value['reference'])} in the reference, "
            f"{_numbers(value['port'])} in the port"
            for name, value in evidence.get("values", {}).items()
        ]
    wrong, judged = evidence["parameters_wrong"], evidence["parameters_judged"]
    return [
        f"moves {wrong} of {judged} parameters otherwise, from step {evidence['first_step']} on, by up to "
        f"{figure(evidence['largest_relative_difference'])} relative: {some(evidence['parameters'])}"
    ]


def _of_data(evidence: Mapping[str, Any]) -> list[str]:
    lines = []
    if "step" in evidence:
        number = f"{evidence['step_number'] + 1}, " if "step_number" in evidence else ""
        lines.append(f"first differs in step {number}{evidence['step']}, on sample {evidence.get('sample', 0)}")
    if "reference_steps" in evidence:
        lines.append(f"steps of the reference: {', '.join(evidence['reference_steps'])}")
        lines.append(f"steps of the port: {', '.join(evidence['port_steps'])}")
    if "first_difference" in evidence:
        both = evidence["values"]
        lines.append(
            f"first at {evidence['first_difference']}: {figure(both['reference'])} in the reference, "
            f"{figure(both['port'])} in the port; {100 * evidence['share_differing']:.3g}% of the values differ, "
            f"by up to {figure(evidence['largest_difference'])}"
        )
    if "shapes" in evidence:
        lines.append(f"shape {evidence['shapes']['port']}, the reference has {evidence['shapes']['reference']}")
    if "order" in evidence:
        lines.append(f"the port's samples are the reference's numbers {some([str(n) for n in evidence['order']])}")
    if evidence.get("pictures"):
        lines.append(f"{PATHS_OF_IMAGES}{', '.join(str(path) for path in evidence['pictures'])}")
    return lines


def _of_metric(evidence: Mapping[str, Any]) -> list[str]:
    return [
        f"{name}: {figure(value.get('ref'))} in the reference, {figure(value.get('paddle'))} in the port"
        for name, value in evidence.get("values", {}).items()
    ]


def _numbers(values: Sequence[Any]) -> str:
    return "[" + ", ".join(figure(value) for value in values[:_SHOWN]) + (", …]" if len(values) > _SHOWN else "]")
