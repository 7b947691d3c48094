"""Edits that let a layer of the port start from the reference's initialiser."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import libcst as cst

from twinalign.edits.source import Edit, Source, name_of, with_arguments

_INITIALIZERS = frozenset(
    {
        *("Assign", "Constant", "Normal", "Orthogonal", "TruncatedNormal", "Uniform"),
        *("KaimingNormal", "KaimingUniform", "XavierNormal", "XavierUniform"),
    }
)
_ATTRIBUTES = {"weight": "weight_attr", "bias": "bias_attr"}


def initial_edits(
    remedies: Mapping[str, str],
    place: Mapping[str, Any],
    parameters: Sequence[str],
    sources: Mapping[str, Source],
) -> Iterator[Edit | None]:
    """Edits for one layer, the likeliest first: where it is built, or where its parameters are made.

    Args:
        remedies: leaf of a tensor's name (`weight`) -> the initialiser to write, a call of `paddle.nn.initializer`.
        place: of the layer, as of `replay.construction_places.port_places`.
        parameters: of the layer's class.
        sources: file, as `place` names it -> its source.
    """
    for file, *position in place["calls"]:
        built = sources[file].call_at(position)
        values = {
            _ATTRIBUTES[leaf]: _started(built, _ATTRIBUTES[leaf], _written(sources[file], remedy))
            for leaf, remedy in remedies.items()
            if built is not None and _ATTRIBUTES.get(leaf, "") in parameters
        }
        if built is not None and len(values) == len(remedies):
            yield sources[file].edit(built, with_arguments(built, values, parameters))
    for leaf, remedy in remedies.items():
        for file in _files(place):
            yield from _of_parameter(sources[file], leaf, remedy, place["constructor"])


def edits_of_initializers(
    remedies: Mapping[str, str], place: Mapping[str, Any], sources: Mapping[str, Source]
) -> Iterator[Edit | None]:
    """Each initialiser in the files of a layer exchanged for a remedy, which may be those of other layers.

    First come those in lines that name the parameter. Arguments as of `initial_edits`.
    """
    for leaf, remedy in remedies.items():
        for file in _files(place):
            yield from _of_initializers(sources[file], leaf, remedy)


def _files(place: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(span[0] for span in (*place["constructor"], *place["around"])))


def _of_parameter(source: Source, leaf: str, remedy: str, spans: Sequence[Sequence[Any]]) -> Iterator[Edit | None]:
    """The initialiser of what the layer's own constructor makes by `create_parameter`."""
    for _, first, last in [span for span in spans if span[0] == source.file]:
        for node in source.within(range(first, last + 1)):
            made = node.value if isinstance(node, cst.Assign) else None
            if not isinstance(node, cst.Assign) or not isinstance(made, cst.Call):
                continue
            if name_of(made) == "create_parameter" and source.text_of(node.targets[0].target) == f"self.{leaf}":
                values = {"default_initializer": _written(source, remedy)}
                yield source.edit(made, with_arguments(made, values, []))


def _of_initializers(source: Source, leaf: str, remedy: str) -> Iterator[Edit | None]:
    calls = [call for call in source.calls(1, source.text.count("\n") + 1) if name_of(call) in _INITIALIZERS]
    lines = source.text.split("\n")
    calls.sort(key=lambda call: leaf not in lines[source.span(call)[0] - 1])
    for call in calls:
        yield source.edit(call, _written(source, remedy))


def _started(built: cst.Call | None, attribute: str, initializer: cst.BaseExpression) -> cst.BaseExpression:
    """The value of `weight_attr` or `bias_attr`: a `ParamAttr` that is given keeps what else it says."""
    for argument in built.args if built is not None else ():
        if argument.keyword is not None and argument.keyword.value == attribute:
            given = argument.value
            if isinstance(given, cst.Call) and name_of(given) == "ParamAttr":
                return with_arguments(given, {"initializer": initializer}, [])
    return initializer


def _written(source: Source, remedy: str) -> cst.BaseExpression:
    """The remedy with the name by which this file knows paddle's initialisers."""
    module = "paddle.nn.initializer"
    for node in ast.walk(ast.parse(source.text)):
        if isinstance(node, ast.ImportFrom) and node.module in ("paddle", "paddle.nn"):
            for alias in node.names:
                rest = {"nn": ".initializer", "initializer": ""}.get(alias.name)
                module = module if rest is None else f"{alias.asname or alias.name}{rest}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname and alias.name in ("paddle.nn", "paddle.nn.initializer", "paddle"):
                    module = alias.asname + "paddle.nn.initializer".removeprefix(alias.name)
    return cst.parse_expression(remedy.replace("paddle.nn.initializer", module))
