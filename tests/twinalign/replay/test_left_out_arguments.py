"""What a function makes and never reads, as an argument, a condition or a factor that its code lacks."""

from __future__ import annotations

import ast

import pytest

from twinalign.replay.aligned_code import parsed
from twinalign.replay.left_out_arguments import (
    left_out_arguments,
    left_out_factors,
    left_out_masks,
    left_out_names,
)

FUNCTION = """
def kept(boxes, classes, overlap, most, mask):
    found, sizes = [], []
    for i in range(most):
        sizes.append(i)
        if not any(overlap[i, k] > 0.5 for k in found):
            found.append(i)
    return np.average(boxes[found] * 2), classes.sum()
"""


@pytest.mark.parametrize(
    ("unread", "expected"),
    [
        ("classes.sum()", "classes[i] == classes[k] and overlap[i, k] > 0.5"),
        ("classes.sum()", "boxes[found] * 2 * classes"),
        ("mask", "np.average(boxes[found] * 2, weights=sizes)"),
    ],
)
def test_what_is_never_read_is_what_the_code_lacks(unread: str, expected: str) -> None:
    code = parsed(FUNCTION.replace(f", {unread}", "").strip(), "port.py", 1, "kept", "paddle")
    assert code is not None
    code.globals = {"np": ["name", "numpy"]}
    edits = [*left_out_arguments(code, code.tree.body, ()), *left_out_names(code, code.tree.body)]
    assert expected in [ast.unparse(new) for _, new in edits]


def test_where_all_is_read_nothing_is_left_out() -> None:
    code = parsed("def half(x):\n    y = x / 2\n    return np.sum(y > 0.5)", "port.py", 1, "half", "paddle")
    assert code is not None
    code.globals = {"np": ["name", "numpy"]}
    assert [*left_out_arguments(code, code.tree.body, ()), *left_out_names(code, code.tree.body)] == []


def test_a_mask_chooses_throughout_a_statement() -> None:
    source = (
        "def scaled(f0):\n    voiced = f0 > 0\n    mean, std = np.mean(f0), np.std(f0)\n    return (f0 - mean) / std"
    )
    code = parsed(source, "port.py", 1, "scaled", "paddle")
    assert code is not None
    edits = [(ast.unparse(old), ast.unparse(new)) for old, new in left_out_masks(code, code.tree.body)]
    assert ("(np.mean(f0), np.std(f0))", "(np.mean(f0[voiced]), np.std(f0[voiced]))") in edits
    assert ("f0", "f0[voiced]") in edits


def test_a_name_may_lack_the_factor_of_another() -> None:
    source = "def ce(logp, onehot, weight):\n    row = onehot * weight\n    return row.sum() - logp.sum(-1)"
    code = parsed(source, "port.py", 1, "ce", "paddle")
    assert code is not None
    edits = [(ast.unparse(old), ast.unparse(new)) for old, new in left_out_factors(code, code.tree.body)]
    assert ("logp", "logp * weight") in edits
    assert not any(old == "onehot" for old, _ in edits)


COLLECTED = """
def hits(found, taken):
    taken = set()
    for scene, best, share in found:
        if share > 0.5:
            taken.METHOD((scene, best))
"""


@pytest.mark.parametrize("method", ["add", "append"])
def test_what_is_collected_and_never_read_is_a_condition(method: str) -> None:
    code = parsed(COLLECTED.replace("METHOD", method).strip(), "port.py", 1, "hits", "paddle")
    assert code is not None
    edits = [ast.unparse(new) for _, new in left_out_names(code, code.tree.body)]
    assert "share > 0.5 and (scene, best) not in taken" in edits
