"""Located faults on the terminal: the tree of layers with wrong ones marked, then each fault with its cause."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from twinalign.reports.fault_facts import (
    acceptance,
    edit_place,
    entries,
    facts,
    layer_values,
    no_layer_judged,
    remarks,
    shown_phase,
    some,
    without_counterpart,
)
from twinalign.reports.language import language
from twinalign.reports.layer_tree import faults_by_part
from twinalign.reports.shown_values import figure
from twinalign.terminal.console import output, print_text

_ALONE = {
    "reference": "{} of the reference without a counterpart in the port (left out, or written as code): {}",
    "paddle": "{} of the port without a counterpart in the reference (added, or code in the reference): {}",
}
_ALIKE = 3
"""Wrong layers of one class, directly inside one layer, that the tree shows one by one."""
_UNEXPLAINED = "unexplained: no known cause reproduces it"


def print_located(found: Mapping[str, Any], console: Console | None = None, *, unlocated: str = "") -> None:
    """Print trees, faults, and the verdict; `unlocated` describes the divergence if no fault was found."""
    console = console or output()
    faults, parts = found["faults"], list(found["layers"].items())
    wrong = [fault for fault in faults if "accepted" not in fault["evidence"]]
    of_parts = faults_by_part(parts, wrong) if parts else {}
    for part, described in parts:
        if of_parts[part]:
            console.print(layer_tree(part, described["layers"], of_parts[part]))
        for side, alone in described["without_partner"].items():
            if paths := without_counterpart(alone, side, described["layers"]):
                console.print(Text(_ALONE[side].format(_count(len(paths), "layer"), some(paths))), style="yellow")
        for text in _of_draws(described["layers"]):
            print_text(console, text, "yellow")
    for text in remarks(found):
        print_text(console, text, "yellow")
    shown = entries(wrong)
    for number, fault in enumerate(shown, start=1):
        print_text(console, fault_text(f"{number}.", fault))
    for fault in entries(fault for fault in faults if "accepted" in fault["evidence"]):
        print_text(console, fault_text("accepted:", fault))
    judged = sum(layer.get("judged", True) for _, described in parts for layer in described["layers"])
    if wrong:
        text = f"\n{found['case']}: {counted(shown)}; {_count(judged, 'layer')} judged alone"
        console.print(Text(text, style="bold red"))
    elif reason := no_layer_judged(found):
        print_text(console, f"{found['case']}: {reason}", "bold yellow")
    else:
        doubtful = unlocated or found.get("not_searched")
        text, style = f"{found['case']}: no fault located", f"bold {'yellow' if doubtful else 'green'}"
        console.print(Text(f"{text}; {_count(judged, 'layer')} judged alone", style=style))
    if not wrong and unlocated:
        print_text(console, unlocated, "yellow")


def counted(shown: Sequence[Mapping[str, Any]]) -> str:
    """How many faults `entries` has found, and how many conventions of the framework, which are none."""
    conventions = [fault for fault in shown if "convention" in fault["evidence"]]
    faults = [fault for fault in shown if "convention" not in fault["evidence"]]
    explained = sum(fault["explanation"] is not None for fault in faults)
    said = []
    if faults:
        said.append(f"{_count(len(faults), 'fault')}{_places(faults)} found, {explained} explained")
    if conventions:
        said.append(f"{_count(len(conventions), 'convention')} of paddle{_places(conventions)} not accepted")
    return "; ".join(said)


def _places(shown: Sequence[Mapping[str, Any]]) -> str:
    places = len(shown) + sum(len(fault["also"]) for fault in shown)
    return f" in {places} places" if places > len(shown) else ""


def _of_draws(layers: Sequence[Mapping[str, Any]]) -> list[str]:
    """A note on layers with random draws, whose outputs are not compared."""
    said = {
        "not judged (random draws)": ["ref", "paddle"],
        "with random draws in the reference alone": ["ref"],
        "with random draws in the port alone": ["paddle"],
    }
    found = {text: [x["paddle_layer"] for x in layers if x["draws"] == sides] for text, sides in said.items()}
    return [f"{_count(len(paths), 'layer')} {text}: {some(paths)}" for text, paths in found.items() if paths]


def layer_tree(part: str, layers: Iterable[Mapping[str, Any]], faults: Iterable[Mapping[str, Any]]) -> Tree:
    """The path to each wrong layer; clean subtrees are only counted."""
    phases: dict[str, list[str]] = {}
    for fault in faults:
        phases.setdefault(fault["paddle_layer"], []).append(_phase(fault))
    known = {layer["paddle_layer"]: layer for layer in layers}
    open_paths = {prefix for path in phases for prefix in _prefixes(path)}
    root = Tree(_label(part, known.get("", {}), phases.get("", [])))
    nodes = {"": root}
    hidden: dict[str, int] = {}
    alike: dict[tuple[str, str, str], list[str]] = {}
    for path in [*known, *(path for path in phases if path not in known)]:
        outer = path.rpartition(".")[0]
        while outer not in nodes and outer:
            outer = outer.rpartition(".")[0]
        if not path:
            continue
        kind = (outer, str(known.get(path, {}).get("class")), ", ".join(phases.get(path, [])))
        if path in phases and not any(other.startswith(f"{path}.") for other in phases):
            alike.setdefault(kind, []).append(path)
            if len(alike[kind]) > _ALIKE:
                open_paths.discard(path)
                continue
        if path in open_paths:
            name = path.removeprefix(f"{outer}.") if outer else path
            nodes[path] = nodes[outer].add(_label(name, known.get(path, {}), phases.get(path, [])))
        elif path.rpartition(".")[0] in open_paths or not path.rpartition(".")[0]:
            hidden[outer] = hidden.get(outer, 0) + 1
    for (outer, _, phase), paths in alike.items():
        if more := paths[_ALIKE:]:
            nodes[outer].add(
                Text(f"… {len(more)} more like {paths[-len(more) - 1]}: {some(more)}  ✗ {phase}", style="red")
            )
    for outer, count in hidden.items():
        nodes[outer].add(Text(f"… {_count(count, 'layer')} right", style="dim"))
    return root


def fault_text(mark: str, fault: Mapping[str, Any]) -> Text:
    """A fault of `entries` with its cause, edits and evidence, after its number or status."""
    where = fault["paddle_layer"] or "the model's own code"
    text = Text.assemble("\n", (f"{mark} {where}", "bold"), f" ({_phase(fault)})")
    if fault["reference_layer"] != fault["paddle_layer"]:
        text.append(f", in the reference {fault['reference_layer'] or 'the model itself'}")
    for fact in facts(fault):
        text.append(f"\n   {fact}")
    for name, found in list(layer_values(fault).items())[:3]:
        shown = found["text"] or f"relative difference {figure(found['relative'])}, at most {figure(found['max_abs'])}"
        text.append(f"\n   {name}: {shown}", style="dim")
    if (explanation := fault["explanation"]) is not None:
        text.append(f"\n   cause: {', '.join([explanation['text'], *fault['lines']])}", style="green")
        text.append(f" [{explanation['id']}]", style="dim")
        for edit in fault["edits"]:
            text.append(f"\n   edit: {edit_line(edit)}", style="cyan")
    else:
        text.append(f"\n   {_UNEXPLAINED}", style="yellow")
    if fault.get("suggestion") and not fault["edits"] and "convention" not in fault["evidence"]:
        text.append(f"\n   remedy: {fault['suggestion']}", style="cyan")
    for remark in acceptance(fault, language("en")):
        text.append(f"\n   {remark}", style="dim")
    return text


def edit_line(edit: Mapping[str, Any]) -> str:
    """An edit in one line: its place, the text as it is, the text as it is to be."""
    return f"{edit_place(edit)}  {_flat(edit['before'])}  →  {_flat(edit['after'])}"


def _flat(text: str) -> str:
    return " ".join(text.split())


def _phase(fault: Mapping[str, Any]) -> str:
    return language("en").known("phase", shown_phase(fault))


def _label(name: str, layer: Mapping[str, Any], phases: list[str]) -> Text:
    text = Text(name, style="bold red" if phases else "")
    if layer.get("class"):
        text.append(f" {layer['class'].rpartition('.')[2]}", style="dim")
    if phases:
        text.append(f"  ✗ {', '.join(phases)}", style="red")
    elif (layer.get("inherited_error") or 0.0) > 1e-9:
        text.append(f"  inherits {figure(layer['inherited_error'])}", style="yellow")
    return text


def _prefixes(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
