"""From a located fault to edits of the port's source: argument and value in paddle's spelling, at their place."""

import ast
import builtins
import contextlib
import itertools
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import libcst as cst

from twinalign.edits.argument_values import called_function, optimizer_values, paddle_values
from twinalign.edits.case_edits import exchanged_pairs, known_names, stored_otherwise
from twinalign.edits.certainty import builds_right_ones, certain, line_of_call, lines_near, taker_of, wrong_lines
from twinalign.edits.expressions import (
    divisors_as,
    meaning_as,
    operations_as,
    reductions_as,
    reductions_in,
    with_a_term_added,
    with_item,
    with_layer,
)
from twinalign.edits.from_reference import edits_from_reference, is_spelling, similarity
from twinalign.edits.paddle_calls import (
    ARGUMENTS,
    EXCHANGED,
    FUNCTIONS,
    KINDS,
    LAYERS,
    OPTIMIZER_CLASSES,
    OPTIMIZER_SETTINGS,
)
from twinalign.edits.scopes import runs_there
from twinalign.edits.source import (
    Edit,
    Source,
    applied,
    called_otherwise,
    name_of,
    read_source,
    source_of,
    with_arguments,
)

_MOST = 16
_CHILD = re.compile(r"\bself\.(\w+)")
_OF_WEIGHTS = ("forward", "backward", "state")
"""Phases in which a wrong weight shows."""
_ALIKE = 0.6
"""Share of equal words from which functions of two names are taken for partners."""


class Proposals:
    """Proposes edits; files are parsed once.

    Args:
        places: of `replay.construction_places.port_places`.
        reference: of `replay.construction_places.reference_code`.
        sources: real path -> text that stands for a file.
        layers: path of a layer in the reference -> in the port.
        faults: all that were found, as JSON.
    """

    def __init__(
        self,
        places: Mapping[str, Any],
        reference: Mapping[str, Sequence[Sequence[Any]]],
        sources: Mapping[str, str],
        layers: Mapping[str, str] | None = None,
        faults: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self._places, self._reference, self._texts, self._faults = places, reference, sources, faults
        self._children = _child_names(layers or {})

    def for_fault(self, fault: Mapping[str, Any]) -> list[Edit]:
        """Edits that mend a fault, given as JSON; the likeliest first, none where none is certain."""
        found = self._from_cause(fault)
        if fault["explanation"] is None:
            return []
        certain_ones = found if fault["phase"] == "optimizer" or self._is_built(fault) else certain(fault, found)
        return self.readable([*certain_ones, *self._accepted(fault)])

    def _from_cause(self, fault: Mapping[str, Any]) -> list[Edit]:
        """Edits that may mend a fault, by its cause; of code each place that may be meant."""
        if fault["explanation"] is None:
            return []
        return self.readable(self._of_optimizer(fault) if fault["phase"] == "optimizer" else self._of_layer(fault))

    def _is_built(self, fault: Mapping[str, Any]) -> bool:
        """Whether a fault's layer is one of paddle's own, which has no code but the call that builds it."""
        place = self._places["layers"].get(fault["paddle_layer"], {"class": ""})
        return bool(place["class"].startswith("paddle."))

    def from_reference(self, fault: Mapping[str, Any]) -> list[Edit]:
        """Edits that make the code of a fault's layer what the reference's has in its place; unproven, all of them.

        What may follow from the cause comes first.
        """
        place = self._places["layers"].get(fault["paddle_layer"], {"code": [], "around": []})
        wrong = wrong_lines(fault)
        found: list[tuple[bool, int, Edit]] = []
        for span in (*place["code"], *place["around"]):
            partner = self._partner(span, self._reference.get(fault["reference_layer"], ()))
            if partner is not None:
                theirs = self._with_child_names(self._source(partner[0]), place)
                edits = edits_from_reference(self._source(span[0]), _lines(span), theirs, _lines(partner))
                found += [((Path(one.file).name, one.line) not in wrong, size, one) for size, one in edits]
        found.sort(key=lambda one: one[:2])
        return self.readable([*self._from_cause(fault), *(edit for *_, edit in found)])

    def is_likely(self, edit: Edit, fault: Mapping[str, Any]) -> bool:
        """Whether an unproven edit is in the port's own words, in code of the wrong layer and none of the reference's.

        What makes a parameter is none to be named: the port is given the reference's weights.
        """
        called = {name_of(call) for call in self._source(edit.file).calls(edit.line, edit.line)}
        if "create_parameter" in called or not self._is_in_layer(edit, fault):
            return False
        shared = {place[0] for places in self._reference.values() for place in places}
        return edit.file not in shared and not is_spelling(edit, self._source(edit.file))

    def judged(self, edit: Edit, fault: Mapping[str, Any]) -> dict[str, bool]:
        """Whether an edit is `likely`, and whether it `runs`: whether it names only what the port has in that line."""
        runs = runs_there(self._source(edit.file).text, edit.line, edit.before, edit.after)
        return {"likely": self.is_likely(edit, fault), "runs": runs}

    def calling(self, fault: Mapping[str, Any]) -> list[tuple[str, int]]:
        """File and line of the calls of a fault's code that are those of the reference which its cause changes."""
        place, known = self._places["layers"].get(fault["paddle_layer"], {"code": ()}), fault["explanation"]
        made = known["evidence"].get("reference_calls", ()) if known else ()
        wanted = {name for call in made for name in (call["name"], FUNCTIONS.get(called_function(call)))}
        found = [
            (os.path.basename(file), source.span(call)[0])
            for file, first, last in place["code"]
            for source in [self._source(file)]
            for call in source.calls(first, last)
            if name_of(call) in wanted
        ]
        return list(dict.fromkeys(found))

    def _is_in_layer(self, edit: Edit, fault: Mapping[str, Any]) -> bool:
        place = self._places["layers"].get(fault["paddle_layer"], {"code": ()})
        code, elsewhere = place["code"], place.get("elsewhere", ())
        return not code or (_is_among(edit, code) and not _is_among(edit, elsewhere))

    def of_case(self, fault: Mapping[str, Any]) -> list[Edit]:
        """Edits of how the case converts the weights of a fault's layer; unproven, all of them."""
        found: list[Edit | None] = []
        if fault["phase"] in _OF_WEIGHTS:
            for file, line, _ in self._places["case"]:
                found += exchanged_pairs(self._source(file), line, fault["paddle_layer"])
            for file in self._places["rules"]:
                found += stored_otherwise(self._source(file))
        return self.readable(found)

    def of_names(self, names: Sequence[Collection[str]]) -> list[Edit]:
        """Edits of the case's `rename` where it has names that are none of the reference's, or of the port's."""
        found: list[Edit | None] = []
        for file, line, _ in self._places["case"]:
            found += known_names(self._source(file), line, names)
        return self.readable(found)

    def source_of(self, fault: Mapping[str, Any]) -> list[list[Any]]:
        """`[file, first line, last line]` of the port's lines that build a fault's layer, or are a component's code."""
        place = self._places["layers"].get(fault["paddle_layer"])
        if place is None:
            return []
        calls = [[file, line, end_line] for file, line, _, end_line, _ in place["calls"]]
        return [*calls, *map(list, place["code"]), *map(list, place["constructor"])]

    def sources_of(self, place: Mapping[str, Any]) -> dict[str, Source]:
        """The files of a layer's place, by the names that it has for them."""
        files = [one[0] for key in ("calls", "code", "constructor", "around") for one in place[key]]
        return {file: self._source(file) for file in dict.fromkeys(files)}

    def readable(self, edits: Iterable[Edit | None]) -> list[Edit]:
        """The first edits, each once, of those with which the file is Python still."""
        found: dict[Edit, None] = {}
        for edit in edits:
            if edit is not None and edit not in found and len(found) < _MOST:
                with contextlib.suppress(SyntaxError):
                    ast.parse(applied(self._source(edit.file).text, [edit]))
                    found[edit] = None
        return list(found)

    def _partner(self, span: Sequence[Any], others: Sequence[Sequence[Any]]) -> Sequence[Any] | None:
        """Where the reference's function stands that is most like the port's, itself if both sides share it."""
        here = os.path.realpath(span[0]), span[1]
        for other in others:
            if (os.path.realpath(other[0]), other[1]) == here:
                return other
        mine = self._source(span[0])
        name = mine.function_at(span[1])
        named = [other for other in others if self._source(other[0]).function_at(other[1]) == name]
        alike = [similarity(mine, _lines(span), self._source(one[0]), _lines(one)) for one in named or others]
        best = max(range(len(alike)), key=alike.__getitem__, default=None)
        return (named or others)[best] if best is not None and (named or alike[best] > _ALIKE) else None

    def _of_layer(self, fault: Mapping[str, Any]) -> Iterator[Edit | None]:
        place = self._places["layers"].get(fault["paddle_layer"])
        causes = fault["explanation"]["id"].split("+")
        if place is None:
            return
        for call in fault["explanation"]["evidence"].get("reference_calls", []):
            name = called_function(call)
            if place["class"].startswith("paddle."):
                yield from self._construction(fault, place, name, call, causes)
            else:
                yield from self._code(fault, place, name, call, causes)

    def _construction(
        self,
        fault: Mapping[str, Any],
        place: Mapping[str, Any],
        name: str,
        call: Mapping[str, Any],
        causes: Sequence[str],
    ) -> Iterator[Edit | None]:
        """Edits of the call that builds a layer and no right one, the innermost of the user's own lines first."""
        for (file, *position), others in zip(place["calls"], place.get("others", itertools.repeat(())), strict=False):
            source = self._source(file)
            built = None if builds_right_ones(fault, self._faults, others) else source.call_at(position)
            if built is None or hasattr(builtins, name_of(built)):  # `eval` takes no argument of a layer
                continue
            kind = place["class"].rpartition(".")[2]
            other = KINDS.get(name)
            values = paddle_values(name, call, causes, "layer")
            if any(cause in EXCHANGED for cause in causes) and other and other != kind:
                if name_of(built) == kind:
                    yield source.edit(built, _exchanged(built, other, name, call))
            elif values:
                parameters = self._places["parameters"].get(f"nn.{kind}", [])
                yield source.edit(built, with_arguments(built, _known(values, parameters), parameters))

    def _code(
        self,
        fault: Mapping[str, Any],
        place: Mapping[str, Any],
        name: str,
        call: Mapping[str, Any],
        causes: Sequence[str],
    ) -> Iterator[Edit | None]:
        """Edits of the calls in a layer's or a loss's own code, those of the line that went wrong first."""
        inside = fault["evidence"].get("inside") or {}
        wrong = inside.get("unknown") or {}
        taker = taker_of(fault)
        for file, first, last in place["code"]:
            source = self._source(file)
            calls = list(source.calls(first, last))
            calls.sort(key=lambda found: source.span(found)[0] != wrong.get("line"))
            function = FUNCTIONS.get(name, name)
            values = paddle_values(name, call, causes, "function")
            for found in calls:
                called = name_of(found)
                if called == function and values:
                    parameters = self._places["parameters"].get(f"nn.functional.{function}", [])
                    yield source.edit(found, with_arguments(found, values, parameters))
                elif any(cause in EXCHANGED for cause in causes) and called in _alike(name) and called != function:
                    yield source.edit(found, called_otherwise(found, function))
            lines = lines_near(fault, source, taker, first, last)
            yield from meaning_as(source, causes, lines)
            yield from self._reductions(fault, call, source, name, lines)
            if {"sign_wrong", "operation_swapped"} & set(causes):
                yield from operations_as(source, name, lines)
            if "layer_missing" in causes:
                yield from with_layer(source, call["arguments"].get("path") or call["path"], lines, taker)
            if "residual_missing" in causes:
                near: Sequence[int | None] = lines[::-1] if inside else lines or [None]
                for line in near:
                    yield from with_a_term_added(source, line, first, last)

    def _reductions(
        self, fault: Mapping[str, Any], call: Mapping[str, Any], source: Source, name: str, lines: Sequence[int]
    ) -> Iterator[Edit | None]:
        """Reductions of these lines made the reference's call, or its divisor written where that stands there already.

        Only in lines with as many reductions as the reference's: in another number each of them stands for another one.
        """
        files = [one[0] for one in self._reference.get(fault["reference_layer"], ())]
        place = line_of_call(call, files)
        theirs = None if place is None else reductions_in(self._source(place[0]), place[1])
        for line in lines:
            ours = reductions_in(source, line)
            if theirs is None or (ours.total() == theirs.total() and ours[name] < theirs[name]):
                yield from reductions_as(source, name, [line])
            elif ours == theirs and name in ("std", "var"):
                unbiased = call["arguments"].get("unbiased", call["arguments"].get("correction") != 0)
                yield from divisors_as(source, name, unbiased, [line])

    def _accepted(self, fault: Mapping[str, Any]) -> Iterator[Edit]:
        """For a convention of paddle's, the case's class with its id in `accept`."""
        convention = fault["evidence"].get("convention")
        for file, line, _ in self._places["case"] if convention else ():
            source = self._source(file)
            edit = with_item(source, line, "accept", convention)
            if edit is not None:
                yield edit

    def _of_optimizer(self, fault: Mapping[str, Any]) -> Iterator[Edit | None]:
        place = self._places["layers"].get(fault["paddle_layer"])
        causes = fault["explanation"]["id"].split("+")
        wanted = optimizer_values(fault)
        for file, first, last in place["code"] if place else ():
            source = self._source(file)
            for call in source.calls(first, last):
                kind = name_of(call)
                other = next((found for c in causes if (found := OPTIMIZER_CLASSES.get(c, {}).get(kind))), kind)
                known = OPTIMIZER_SETTINGS.get(other, {})
                if not known or "torch" in source.text_of(call.func):
                    continue
                values = {keyword: value for keyword, value in wanted.items() if keyword in known}
                if values:
                    parameters = self._places["parameters"].get(f"optimizer.{kind}", [])
                    changed = with_arguments(call, values, parameters)
                    yield source.edit(call, changed if other == kind else called_otherwise(changed, other))

    def _with_child_names(self, reference: Source, place: Mapping[str, Any]) -> Source:
        """The reference's file with the port's names of child layers, unless it is the port's file as well."""
        shared = {os.path.realpath(span[0]) for key in ("code", "around") for span in place[key]}
        if not self._children or reference.file in shared:
            return reference
        text = _CHILD.sub(lambda found: f"self.{self._children.get(found[1], found[1])}", reference.text)
        return source_of(reference.file, text)

    def _source(self, file: str) -> Source:
        file = os.path.realpath(file)
        text = self._texts.get(file)
        return source_of(file, read_source(file) if text is None else text)


def _is_among(edit: Edit, spans: Iterable[Sequence[Any]]) -> bool:
    return any(edit.file == os.path.realpath(file) and first <= edit.line <= last for file, first, last in spans)


def _child_names(layers: Mapping[str, str]) -> dict[str, str]:
    """Name of a child layer in the reference -> in the port, where these differ and are always the same."""
    found: dict[str, set[str]] = {}
    for theirs, ours in layers.items():
        found.setdefault(theirs.rpartition(".")[2], set()).add(ours.rpartition(".")[2])
    single = {theirs: min(ours) for theirs, ours in found.items() if len(ours) == 1 and ours != {theirs}}
    return {theirs: ours for theirs, ours in single.items() if ours.isidentifier()}  # in a list of layers it is none


def _lines(span: Sequence[Any]) -> tuple[int, int]:
    return span[1], span[2]


def functions_of(faults: Sequence[Mapping[str, Any]]) -> list[str]:
    """Paths in paddle of the functions and classes whose parameters the edits of these faults need."""
    found = [f"optimizer.{name}" for name in OPTIMIZER_SETTINGS]
    for fault in faults:
        found.append(f"nn.{str(fault['evidence'].get('paddle_class', '')).rpartition('.')[2]}")
        for call in (fault["explanation"] or {"evidence": {}})["evidence"].get("reference_calls", []):
            name = called_function(call)
            found.append(f"nn.functional.{FUNCTIONS.get(name, name)}")
    return list(dict.fromkeys(found))


def _known(values: Mapping[str, Any], parameters: Sequence[str]) -> dict[str, Any]:
    """The values that a layer of these parameters takes; what a convolution pads with is an argument of its own."""
    if not parameters:
        return dict(values)
    if "padding_mode" in parameters and "mode" in values:
        values = {"padding_mode": values["mode"], **values}
    return {name: value for name, value in values.items() if name in parameters}


def _exchanged(built: cst.Call, other: str, name: str, call: Mapping[str, Any]) -> cst.Call:
    """The construction of the reference's kind of layer: a pool keeps its window, unless the whole layer is known."""
    changed = called_otherwise(built, other)
    if "pool" in name and call["name"] != "unit":
        if name.startswith("avg"):
            counted = call["arguments"].get("count_include_pad", True)
            return with_arguments(changed, {"exclusive": not counted}, [])
        window = [
            a for a in changed.args if a.keyword is None or a.keyword.value not in ("exclusive", "divisor_override")
        ]
        return changed.with_changes(args=window)
    values = {}
    for argument, spelled in ARGUMENTS.get(name, {}).items():
        given = call["arguments"].get(argument)
        if given is not None and given != spelled.default:
            values[spelled.layer] = spelled.value(given)
    return with_arguments(changed.with_changes(args=[]), values, [])


def _alike(name: str) -> set[str]:
    """Functions that are mistaken for this one."""
    family = [other for other in LAYERS if ("pool" in other) == ("pool" in name)]
    return {FUNCTIONS.get(other, other) for other in family}
