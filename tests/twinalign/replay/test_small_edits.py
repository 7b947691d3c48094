"""Small edits of expressions."""

from __future__ import annotations

import ast

import pytest

from twinalign.replay.edited_trees import times
from twinalign.replay.small_edits import plain_edits


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("(1.0 - w) * flip(x) + w * x", "(1.0 - w) * x + w * flip(x)"),
        ("a * x[0] - b * y", "a * y - b * x[0]"),
    ],
)
def test_weights_are_exchanged(line: str, meant: str) -> None:
    tree = ast.parse(line)
    assert meant in [ast.unparse(new) for _, new in plain_edits([tree], (), ())]


@pytest.mark.parametrize(("line", "meant"), [("int(name[7])", "int(name[7]) + 1"), ("len(row)", "len(row) - 1")])
def test_a_place_is_one_off(line: str, meant: str) -> None:
    tree = ast.parse(line)
    assert meant in [ast.unparse(new) for old, new in plain_edits([tree], (), ()) if isinstance(old, ast.Call)]


def test_what_is_done_to_another_name_is_forgotten_here() -> None:
    tree = ast.parse("best = policy(norm(state))\nvalue = critic(start, best)")
    last = tree.body[1]
    edits = [(ast.unparse(old), ast.unparse(new)) for old, new in plain_edits([last], (), ast.walk(tree))]
    assert ("start", "norm(start)") in edits
    first = [ast.unparse(new) for _, new in plain_edits([tree.body[0]], (), ast.walk(tree))]
    assert "norm(norm(state))" not in first


def test_parts_of_tensors_are_exchanged() -> None:
    tree = ast.parse("y = first(x[0], x[:-1] - 0.9 * x[1:])")
    edits = [ast.unparse(new) for _, new in plain_edits([tree], (), ())]
    assert "x[1:] - 0.9 * x[:-1]" in edits
    assert ast.unparse(tree) == "y = first(x[0], x[:-1] - 0.9 * x[1:])"


def test_what_is_made_and_never_read_is_meant_first() -> None:
    tree = ast.parse("ended = total(dones)\nbefore = shifted(ended)\nkept = rewards * (ended == 0)")
    edits = [
        ast.unparse(new) for old, new in plain_edits([tree.body[2]], (), ast.walk(tree)) if isinstance(new, ast.Name)
    ]
    assert "before" in edits
    assert edits.index("before") < edits.index("dones")


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("w * (a + b)", "a + w * b"),
        ("w * (a + b)", "w * a + b"),
        ("a + w * b", "(a + w) * b"),
        ("(a - b) * w", "a - b * w"),
        ("1 - x.pow(2)", "(1 - x).pow(2)"),
        ("(1 - x).pow(2)", "1 - x.pow(2)"),
        ("relu(x + y)", "relu(x) + y"),
        ("relu(x + y)", "x + relu(y)"),
    ],
)
def test_brackets_stand_elsewhere(line: str, meant: str) -> None:
    tree = ast.parse(line)
    assert meant in [ast.unparse(new) for _, new in plain_edits([tree], (), ())]
    assert ast.unparse(tree) == line


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("x.reshape([n, d, h]).transpose([0, 2, 1])", "x.reshape([n, h, d])"),
        ("x.reshape([n, l, d, h]).transpose([0, 3, 1, 2])", "x.reshape([n, l, h, d]).transpose([0, 2, 1, 3])"),
        ("x.view(n, l, d, h).permute(0, 3, 1, 2)", "x.view(n, l, h, d).permute(0, 2, 1, 3)"),
    ],
)
def test_axes_are_taken_apart_in_another_order(line: str, meant: str) -> None:
    tree = ast.parse(line)
    assert meant in [ast.unparse(new) for _, new in plain_edits([tree], (), ())]
    assert ast.unparse(tree) == line


def test_axes_that_are_no_plain_numbers_are_left_alone() -> None:
    tree = ast.parse("x.reshape([n, d, h]).transpose([0, axis, 1])")
    assert "x.reshape([d, n, h])" not in [ast.unparse(new) for _, new in plain_edits([tree], (), ())]


def test_a_tensor_is_not_given_its_own_shape() -> None:
    tree = ast.parse("x.reshape([x.shape[0], x.shape[2], x.shape[1]]).transpose([0, 2, 1])")
    assert "x.reshape([x.shape[0], x.shape[1], x.shape[2]])" not in [
        ast.unparse(n) for _, n in plain_edits([tree], (), ())
    ]


def test_the_sign_of_a_negative_number_goes() -> None:
    negative, positive = (ast.parse(text, mode="eval").body for text in ("-1e9", "x"))
    assert [ast.unparse(times(node, -1.0)) for node in (negative, positive)] == ["1000000000.0", "-x"]


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("ids[:n].reshape([-1, b]).T", "ids[:n].reshape([b, -1])"),
        ("ids.reshape(b, -1)", "ids.reshape(-1, b).T"),
        ("right / mask.size", "mask.sum()"),
        ("loss(out['rec_a'], a) + loss(out['fake_b'], b)", "out['rec_a']"),
    ],
)
def test_another_reading_of_the_same_values(line: str, meant: str) -> None:
    tree = ast.parse(line)
    assert meant in [ast.unparse(new) for _, new in plain_edits([tree], (), ast.walk(tree))]


def test_what_changes_nothing_or_cannot_run_is_not_tried() -> None:
    tree = ast.parse("def f(x):\n    y = 0.5 * x\n    return np.mean(y)")
    edits = [ast.unparse(new) for _, new in plain_edits(tree.body, (), ast.walk(tree))]
    assert "x * 0.5" not in edits
    assert not [one for one in edits if "np + 1" in one or one.startswith(("y.mean", "x.mean"))]


@pytest.mark.parametrize(
    ("line", "theirs", "meant"),
    [
        ("error.mean()", "torch.mean(error, dim=(1, 2, 3))", "error.mean(axis=(1, 2, 3))"),
        ("x / x.std()", "(x - x.mean(0)) / x.std(0, unbiased=False)", "x.std(axis=0)"),
    ],
)
def test_a_reduction_is_along_some_axes(line: str, theirs: str, meant: str) -> None:
    tree, other = ast.parse(line), ast.parse(theirs)
    assert meant in [ast.unparse(new) for _, new in plain_edits([tree], ast.walk(other), ())]


def test_a_reduction_along_an_axis_gets_no_second_one() -> None:
    tree, other = ast.parse("x.mean(axis=1)"), ast.parse("x.mean(dim=0)")
    assert not any(
        "axis=0" in ast.unparse(new)
        for _, new in plain_edits([tree], ast.walk(other), ())
        if "axis=1" in ast.unparse(new)
    )


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("soft * p + w * (1 - soft) * q", "w * soft * p + (1 - soft) * q"),
        ("w * a - b", "a - w * b"),
        ("x.max(axis=-1)", "x.max(axis=[-1, 1])"),
        ("x.sum(axis=[1, 2])", "x.sum(axis=2)"),
    ],
)
def test_a_factor_or_an_axis_is_elsewhere(line: str, meant: str) -> None:
    edits = plain_edits([ast.parse(line)], (), ())
    assert ast.dump(ast.parse(meant, mode="eval").body) in [
        ast.dump(ast.parse(ast.unparse(new), mode="eval").body) for _, new in edits
    ]


def test_a_mask_counts_what_is_there() -> None:
    tree = ast.parse("mask = (ids != 0)\nmean = total / ids.shape[1]")
    edits = [(ast.unparse(old), ast.unparse(new)) for old, new in plain_edits([tree.body[1]], (), ast.walk(tree))]
    assert ("ids.shape[1]", "mask.sum(axis=1).clip(min=1)") in edits


def test_nothing_is_split_into_less_than_one_part() -> None:
    """It ends paddle's process."""
    edits = [ast.unparse(new) for _, new in plain_edits([ast.parse("paddle.split(x, 4)")], (), ())]
    assert "3" in edits
    assert not {"-4", "0"} & {*edits}
    assert "-4" in [ast.unparse(new) for _, new in plain_edits([ast.parse("first(x, 4)")], (), ())]


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("layer.momentum = keep", "1 - keep"),
        ("far = distance > r", "r * r"),
        ("loss = (w * nll).mean()", "(w * nll).sum() / w.sum()"),
        ("loss = (w * nll).mean(axis=1)", "(w * nll).sum(axis=1) / w.sum(axis=1)"),
        ("loss = paddle.mean(w * nll)", "(w * nll).sum() / nll.sum()"),
        ("loss = (w * nll).sum() / w.sum()", "(w * nll).mean()"),
        ("kept = history[:longest]", "history[-longest:]"),
        ("kept = history[-longest:]", "history[:longest]"),
        ("norm(x, momentum=0.1)", "0.9"),
        ("std = values.std(axis=0)", "values.std(axis=0, ddof=1)"),
        ("var = np.var(values)", "np.var(values, ddof=1)"),
        ("var = x.var(axis=1)", "x.var(axis=1, unbiased=False)"),
        ("order = paddle.argsort(scores)", "paddle.argsort(scores, descending=True)"),
        ("for t in steps:\n    alive[t] = 1\n    disc[t] = gamma ** k", "gamma ** k * alive[t]"),
    ],
)
def test_opposites_squares_weighted_means_and_what_stands_at_the_same_place(line: str, meant: str) -> None:
    tree = ast.parse(line)
    assert meant in [ast.unparse(new) for _, new in plain_edits([tree], (), ast.walk(tree))]


def test_a_loop_goes_over_what_the_one_around_it_goes_over() -> None:
    tree = ast.parse(
        "for h in (part(0), part(1), part(2)):\n    for w in (part(0), part(2)):\n        y[h, w] = (1, 2)"
    )
    edits = [(ast.unparse(old), ast.unparse(new)) for old, new in plain_edits([tree], (), ast.walk(tree))]
    assert ("(part(0), part(2))", "(part(0), part(1), part(2))") in edits
    assert not any(new == "(1, 2)" for old, new in edits if old.startswith("(part"))  # of other kinds of things


def test_a_condition_loses_a_part_or_holds_for_either() -> None:
    tree = ast.parse("first(p) and p.ndim > 1")
    edits = [ast.unparse(new) for _, new in plain_edits([tree], (), ())]
    assert {"first(p)", "p.ndim > 1", "first(p) or p.ndim > 1"} <= {*edits}


def test_what_attributes_are_read_of_is_no_number() -> None:
    edits = [ast.unparse(new) for _, new in plain_edits([ast.parse("p.name in names")], (), ())]
    assert not {"p * p", "p + 1", "-1.0 * p"} & {*edits}
    assert "names + 1" in edits


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("[p for p in parameters if p.ndim > 1]", "[p for p in parameters]"),
        ("[p for p in groups[0]['params']]", "[p for each in groups for p in each['params']]"),
        (
            "sum(p.numel() for p in self.parts[1] if p.trains)",
            "(p.numel() for each in self.parts for p in each if p.trains)",
        ),
    ],
)
def test_what_goes_through_one_of_several_goes_through_all(line: str, meant: str) -> None:
    edits = [ast.unparse(new) for _, new in plain_edits([ast.parse(line)], (), ())]
    assert meant in edits
    assert not any(
        "each" in ast.unparse(new) for _, new in plain_edits([ast.parse("[p for p in groups[name]]")], (), ())
    )


def test_a_share_is_not_exchanged_with_what_it_is_of() -> None:
    edits = [ast.unparse(new) for _, new in plain_edits([ast.parse("crop(x, size // 2, a // b)")], (), ())]
    assert "2 // size" not in edits
    assert "b // a" in edits


@pytest.mark.parametrize(
    ("text", "reference", "meant"),
    [
        ("symmetric", "np.pad(x, 2, mode='reflect')", ["reflect"]),
        ("nearest", "f(x)", ["bilinear", "bicubic", "area"]),
        ("mean", "loss(x, kind='charbonnier')", ["sum", "none", "charbonnier"]),
        ("blur", "np.pad(x, 2, mode='reflect')", []),
    ],
)
def test_an_option_is_another_of_its_kind_or_one_that_the_reference_gives(
    text: str, reference: str, meant: list[str]
) -> None:
    port, theirs = ast.parse(f"g(x, how={text!r})"), ast.walk(ast.parse(reference))
    edits = [(old, new) for old, new in plain_edits([port], theirs, ()) if isinstance(old, ast.Constant)]
    found = [new.value for old, new in edits if old.value == text and isinstance(new, ast.Constant)]
    assert set(meant) <= set(found)
    assert bool(found) == bool(meant)


@pytest.mark.parametrize(
    ("line", "part", "meant"),
    [
        ("bias[:n] = 1", ":n", "n:2 * n"),
        ("bias[n:2 * n] = 1", "n:2 * n", ":n"),
        ("bias[n:2 * n] = 1", "n:2 * n", "2 * n:3 * n"),
        ("gates[:, 2 * n:3 * n] = 0.0", "2 * n:3 * n", "1 * n:2 * n"),
    ],
)
def test_another_part_is_written_to(line: str, part: str, meant: str) -> None:
    found = {(ast.unparse(old), ast.unparse(new)) for old, new in plain_edits([ast.parse(line)], (), ())}
    assert (part, meant) in found


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("x.sum() / n.sum()", "x.mean()"),
        ("-gather(x, last).sum() / n.sum()", "-gather(x, last).mean()"),
        ("concat([x[:1], -x[1:]], axis=0)", "[-x[:1], x[1:]]"),
        ("concat([-x, y, z])", "[x, y, -z]"),
    ],
)
def test_means_and_signs_that_stand_elsewhere(line: str, meant: str) -> None:
    assert meant in [ast.unparse(new) for _, new in plain_edits([ast.parse(line)], (), ())]
