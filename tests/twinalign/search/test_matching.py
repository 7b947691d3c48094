"""Calls find their partners by name, order and values, and through containers that one side alone has."""

from __future__ import annotations

from twinalign.replay.layer_calls import Call, Tensor
from twinalign.search.matching import match_calls

Layers = dict[str, tuple[str, "Layers"]]


def calls_of(layers: Layers) -> list[Call]:
    """A model called once, whose layers are called in this order; a layer of no layers makes its input one wider."""
    found: list[Call] = []

    def walk(path: str, kind: str, below: Layers, parent: int | None, width: int) -> int:
        call = Call(len(found), path, f"package.{kind}", parent, 0)
        call.inputs = [Tensor(None, [2, width], "float64")]
        found.append(call)
        for name, (inner, deeper) in below.items():
            width = walk(f"{path}.{name}".lstrip("."), inner, deeper, call.number, width)
        width += not below
        call.outputs = [Tensor(None, [2, width], "float64")]
        return width

    walk("", "Model", layers, None, 3)
    return found


def partners(reference: Layers, port: Layers, names: dict[str, str]) -> tuple[dict[str, str], dict[str, list[str]]]:
    theirs = calls_of(port)
    found = match_calls(calls_of(reference), theirs, {call.path: names.get(call.path, call.path) for call in theirs})
    alone = {side: [call.path for call in calls] for side, calls in found.alone.items()}
    return {port.path: ours.path for ours, port in found.pairs}, alone


BLOCK: Layers = {"conv": ("Conv2d", {}), "act": ("ReLU", {})}
PORT_BLOCK: Layers = {"conv": ("Conv2d", {}), "act": ("ReLU", {})}


def test_blocks_meet_blocks_whatever_container_holds_them() -> None:
    reference: Layers = {
        "features": ("Sequential", {"0": ("Block", BLOCK), "1": ("Block", BLOCK), "2": ("Linear", {})})
    }
    port: Layers = {
        "stem": ("Block", PORT_BLOCK),
        "blocks": ("Sequential", {"0": ("Block", PORT_BLOCK)}),
        "last": ("Linear", {}),
    }
    found, alone = partners(reference, port, {})
    assert {path: found[path] for path in ("stem", "blocks.0", "last")} == {
        "stem": "features.0",
        "blocks.0": "features.1",
        "last": "features.2",
    }
    assert found["blocks.0.act"] == "features.1.act"
    assert alone == {"reference": [], "paddle": []}


def test_a_block_waits_for_its_partner_in_a_stage_that_is_as_tall() -> None:
    stage: Layers = {"down": ("Conv2d", {}), "0": ("Block", BLOCK)}
    taller: Layers = {"conv": ("Wrapped", {"conv": ("Conv2d", {})}), "act": ("ReLU", {})}
    found, _ = partners(
        {"stages": ("Sequential", {"0": ("Stage", stage)})},
        {"down": ("Conv2d", {}), "block": ("PortBlock", taller)},
        {
            "block": "stages.0.0",
            "block.conv": "<block.conv>",
            "block.conv.conv": "stages.0.0.conv",
            "block.act": "stages.0.0.act",
        },
    )
    assert found["block"] == "stages.0.0"
    assert found["block.conv.conv"] == "stages.0.0.conv"
    assert "block.conv" not in found


def test_what_has_no_partner_is_shown() -> None:
    reference: Layers = {"conv": ("Conv2d", {}), "act": ("ReLU", {})}
    port: Layers = {"conv": ("Conv2d", {}), "act": ("ReLU", {}), "extra": ("Dropout", {})}
    found, alone = partners(reference, port, {})
    assert found == {"": "", "conv": "conv", "act": "act"}
    assert alone == {"reference": [], "paddle": ["extra"]}


def test_a_container_is_no_partner_of_its_last_layer() -> None:
    reference: Layers = {"head": ("Sequential", {"0": ("Conv2d", {}), "1": ("ReLU", {})})}
    port: Layers = {"0": ("Conv2d", {}), "1": ("ReLU", {})}
    found, _ = partners(reference, port, {})
    assert found == {"": "", "0": "head.0", "1": "head.1"}


def test_a_layer_with_weights_of_another_is_no_partner_of_the_one_whose_place_it_takes() -> None:
    inside: Layers = {"attention": ("Linear", {}), "norm2": ("LayerNorm", {}), "mlp": ("Linear", {})}
    reference = calls_of({"norm1": ("LayerNorm", {}), **inside})
    port = calls_of({"norm1": ("LayerNorm", {}), **inside})
    port[3].path, port[3].ordinal = "norm1", 1  # in place of norm2, which nothing calls
    names = {call.path: call.path for call in port}

    def partners_of_second(known: set[str]) -> list[str]:
        found = match_calls(reference, port, names, known)
        return [ours.path for ours, theirs in found.pairs if theirs is port[3]]

    assert partners_of_second({"norm1", "attention", "norm2", "mlp"}) == []
    # An activation without weights may serve in several places.
    assert partners_of_second({"attention", "mlp"}) == ["norm2"]


def test_containers_of_other_layers_are_no_partners() -> None:
    reference = calls_of(
        {"blocks": ("Sequential", {"0": ("Linear", {}), "1": ("Identity", {})}), "norm": ("LayerNorm", {})}
    )
    port = calls_of({"body": ("Sequential", {"0": ("Linear", {}), "1": ("LayerNorm", {})})})
    for call in port:
        if call.path == "body":  # a width that does not tell them apart
            call.outputs = next(other.outputs for other in reference if other.path == "blocks")
    names = {"": "", "body": "<body>", "body.0": "blocks.0", "body.1": "norm"}
    found = match_calls(reference, port, names, ["body.0", "body.1"])
    assert {(port.path, ours.path) for ours, port in found.pairs} == {
        ("", ""),
        ("body.0", "blocks.0"),
        ("body.1", "norm"),
    }


def test_a_layer_with_a_weight_of_the_reference_does_not_lack_a_counterpart() -> None:
    reference: Layers = {"conv": ("Conv1d", {})}
    theirs = calls_of({"conv": ("Conv1D", {"norm": ("WeightNorm", {}), "added": ("ReLU", {})})})
    names = {call.path: call.path for call in theirs}
    for known, expected in (({"conv.norm"}, ["conv.added"]), (set[str](), ["conv.norm", "conv.added"])):
        found = match_calls(calls_of(reference), theirs, names, known)
        assert [call.path for call in found.alone["paddle"]] == expected


def test_independent_calls_of_one_layer_meet_those_that_are_given_the_same() -> None:
    def model(*names: str, given: list[float]) -> list[Call]:
        calls = calls_of({name: ("Net", {}) for name in names})
        for ordinal, (call, value) in enumerate(zip(calls[1:], given, strict=True)):
            call.path, call.ordinal = "online", ordinal
            call.inputs = [Tensor(None, [2, 3], "float64", sample=[value, 1.0])]
        return calls

    def ordinals(first: list[float], second: list[float]) -> list[tuple[int, int]]:
        calls = [model(*"ab"[: len(given)], given=given) for given in (first, second)]
        found = match_calls(*calls, {"": "", "online": "online"})
        return [(ours.ordinal, theirs.ordinal) for ours, theirs in found.pairs if ours.path]

    assert ordinals([1.0, 2.0], [2.0, 1.0]) == [(0, 1), (1, 0)]  # this state and the next one, in another order
    assert ordinals([1.0, 2.0], [3.0, 4.0]) == [(0, 0), (1, 1)]
    assert ordinals([1.0, 1.0], [1.0, 1.0]) == [(0, 0), (1, 1)]
    assert ordinals([2.0], [1.0, 2.0]) == [(0, 1)]  # the port calls it once more, before


def test_networks_of_one_class_are_told_apart_by_the_layers_in_them_and_not_by_order() -> None:
    inside: Layers = {"0": ("Linear", {})}
    reference = calls_of({"target": ("Q", inside), "online": ("Q", inside)})
    port = calls_of({"q": ("Q", inside), "slow": ("Q", inside)})
    for calls in (reference, port):
        for call in calls:
            call.inputs = call.outputs = [Tensor(None, [2, 3], "float64")]
    names = {"": "", "q": "<q>", "slow": "<slow>", "q.0": "online.0", "slow.0": "target.0"}
    found = match_calls(reference, port, names, ["q.0", "slow.0"])
    assert {theirs.path: ours.path for ours, theirs in found.pairs} == {
        "": "",
        "q": "online",
        "slow": "target",
        "q.0": "online.0",
        "slow.0": "target.0",
    }


def test_a_module_that_takes_more_than_another_has_other_code_around_the_same_layers() -> None:
    reference = calls_of({"readout": ("Sequential", {"0": ("Linear", {}), "1": ("Linear", {})})})
    port = calls_of({"head": ("Head", {"hidden": ("Linear", {}), "out": ("Linear", {})})})
    names = {"": "", "head": "<head>", "head.hidden": "readout.0", "head.out": "readout.1"}
    for more in (0, 1):
        head = next(call for call in port if call.path == "head")
        head.inputs = [*head.inputs, *[Tensor(None, [2, 1], "int64")] * more]
        found = match_calls(reference, port, names, {"head.hidden", "head.out"})
        pairs = {theirs.path: ours.path for ours, theirs in found.pairs}
        assert pairs["head.out"] == "readout.1"
        assert ("head" in pairs) is not bool(more)
