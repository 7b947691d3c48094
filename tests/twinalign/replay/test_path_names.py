"""Each layer of the reference is the counterpart of one layer of the port at most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from twinalign.conversion.canonical_names import CanonicalNames
from twinalign.replay.layer_calls import Call
from twinalign.replay.path_names import PathNames


def names_of(
    weights: Mapping[str, str], reference: Sequence[str], port: Sequence[str], rename: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Path in the port → path in the reference; `weights`: layer of the port with weights → that of the reference."""
    canonical = CanonicalNames({f"{port}.weight": [(f"{theirs}.weight", False)] for port, theirs in weights.items()})
    calls = [Call(number, path, "package.Layer", None, 0) for number, path in enumerate(reference)]
    names = PathNames(rename or {}, canonical, calls, dict.fromkeys(port))
    return {path: names.reference_path(path) for path in port}


def test_a_layer_wrapped_in_its_own_name_does_not_claim_the_module_around_it() -> None:
    found = names_of(
        {"block.0.mlp.dwconv.dwconv": "blocks.0.mlp.dwconv", "block.0.mlp.fc": "blocks.0.mlp.fc"},
        ["blocks.0", "blocks.0.mlp", "blocks.0.mlp.fc", "blocks.0.mlp.dwconv"],
        ["block.0", "block.0.mlp", "block.0.mlp.dwconv", "block.0.mlp.dwconv.dwconv", "block.0.mlp.fc"],
    )
    assert found["block.0.mlp"] == "blocks.0.mlp"
    assert found["block.0.mlp.dwconv.dwconv"] == "blocks.0.mlp.dwconv"
    assert len(set(found.values())) == len(found)


def test_the_outer_of_two_claimants_has_the_layer_whichever_is_learned_first() -> None:
    for order in (1, -1):
        weights = [("m.mlp.conv.conv", "n.mlp.conv"), ("m.mlp.fc", "n.mlp.fc")][::order]
        found = names_of(dict(weights), [], ["m", "m.mlp", "m.mlp.conv", "m.mlp.conv.conv", "m.mlp.fc"])
        assert found["m.mlp"] == "n.mlp"
        assert found["m.mlp.conv"] not in ("n.mlp", "n.mlp.conv")


def test_a_layer_without_weights_gets_no_name_that_another_is_known_to_have() -> None:
    found = names_of({"body.second": "body.first"}, ["body.first"], ["body", "body.first", "body.second", "body.act"])
    assert found["body.second"] == "body.first"
    assert found["body.first"] != "body.first"
    assert found["body.act"] == "body.act"


def test_a_module_of_the_same_name_around_the_layer_that_has_the_weights_has_the_name() -> None:
    found = names_of({"body.conv.inner": "body.conv"}, ["body.conv"], ["body", "body.conv", "body.conv.inner"])
    assert found["body.conv"] == "body.conv"
    assert found["body.conv.inner"] != "body.conv"


def test_a_rule_of_the_case_says_where_a_layer_without_weights_is() -> None:
    found = names_of({}, ["encoder.act"], ["body.act", "body"], {"encoder": "body"})
    assert found["body.act"] == "encoder.act"


def test_modules_that_hold_the_same_weights_are_partners_whatever_they_are_called() -> None:
    reference = ["s1", "s1.b1", "s1.b1.conv1", "s1.b1.conv2", "s1.b1.relu"]
    found = names_of(
        {"s1_b1.conv0._conv": "s1.b1.conv1", "s1_b1.conv1._conv": "s1.b1.conv2"},
        reference,
        ["s1_b1", "s1_b1.conv0", "s1_b1.conv0._conv", "s1_b1.conv1", "s1_b1.conv1._conv", "s1_b1.relu"],
    )
    assert found["s1_b1"] == "s1.b1"
    assert found["s1_b1.conv0._conv"] == "s1.b1.conv1"
    assert found["s1_b1.relu"] == "s1.b1.relu"


def test_a_part_of_what_the_reference_packs_is_not_the_layer_that_packs() -> None:
    parts = {
        "attn.q.weight": [("a.qk.weight", False, 0, None, (0, 4))],
        "attn.k.weight": [("a.qk.weight", False, 0, None, (4, 8))],
    }
    calls = [Call(number, path, "package.Layer", None, 0) for number, path in enumerate(["a", "a.qk"])]
    names = PathNames({}, CanonicalNames(parts), calls, dict.fromkeys(["attn", "attn.q", "attn.k"]))
    assert names.reference_path("attn") == "a"
    assert names.reference_path("attn.q") != "a.qk"


class Sequential:
    """Named like a framework's container."""


class Block:
    """One with code of its own."""


def test_a_block_in_containers_of_numbers_is_neither_a_container_nor_the_module_around_all() -> None:
    weights = {"layer_1.0.block.conv": "stages.0.0.conv", "layer_2.0.block.conv": "stages.1.0.conv"}
    canonical = CanonicalNames({f"{port}.weight": [(f"{theirs}.weight", False)] for port, theirs in weights.items()})
    reference = {"stages": "Sequential", "stages.0": "Sequential", "stages.0.0": "Block", "stages.0.0.conv": "Conv2d"}
    calls = [Call(at, path, f"package.{kind}", None, 0) for at, (path, kind) in enumerate(reference.items())]
    kinds = {"layer_1": Sequential, "layer_1.0": Block, "layer_1.0.block": Sequential, "layer_1.0.block.conv": Block}
    names = PathNames({}, canonical, calls, {path: kind() for path, kind in kinds.items()})
    assert names.reference_path("layer_1.0") == "stages.0.0"
    assert names.reference_path("layer_1") == "stages.0"


def test_a_module_with_a_table_is_that_which_holds_its_other_layers_too() -> None:
    found = names_of(
        {"past": "embed.position", "past.value": "embed.value.conv", "past.time": "embed.time"},
        ["embed", "embed.position", "embed.value", "embed.value.conv", "embed.time"],
        ["past", "past.value", "past.time"],
    )
    assert found["past"] == "embed"
    assert found["past.value"] == "embed.value.conv"
