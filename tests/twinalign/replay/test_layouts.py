"""Forms in which a port has a tensor of the reference."""

from __future__ import annotations

import ast

import numpy as np
import pytest
import torch

from twinalign.replay.mask_forms import mask_of_port, other_truths


def test_a_mask_of_the_opposite_sense_is_known_though_it_is_wrong_in_some_places() -> None:
    hidden = np.triu(np.ones((12, 12), bool), 1)
    assert other_truths(~hidden, hidden) is not None
    shifted = np.tril(np.ones((12, 12), bool), 1)
    form = other_truths(shifted, hidden)
    assert form is not None
    assert (form.to_reference(shifted) != hidden).sum() == 11
    assert other_truths(np.triu(np.ones((12, 12), bool), 2), hidden) is None
    chosen = np.random.default_rng(0).uniform(size=(12, 12)) < 0.5
    assert other_truths(chosen, hidden) is None


ALLOWED = np.tril(np.ones((12, 12), bool))


@pytest.mark.parametrize(
    ("port", "reference"),
    [
        (np.where(ALLOWED, 0.0, -1e9), ALLOWED),
        (np.where(ALLOWED, 0.0, -np.inf).astype("float32"), ~ALLOWED),
        (ALLOWED, np.where(ALLOWED, 0.0, -np.inf)),
        (~ALLOWED, np.where(ALLOWED, 0.0, -1e4)),
        (np.where(ALLOWED, 0.0, -1e9)[None, None].repeat(2, 0), ALLOWED[None, None]),
        (np.where(ALLOWED, 0.0, -1e4), np.where(ALLOWED, 0.0, -np.inf)),
        (ALLOWED.astype("float32"), ~ALLOWED),
    ],
)
def test_a_mask_of_another_kind_is_the_same_mask(port: np.ndarray, reference: np.ndarray) -> None:
    form = other_truths(port, reference)
    assert form is not None
    np.testing.assert_array_equal(form.to_reference(port), reference)
    assert form.to_reference(port).dtype == reference.dtype
    np.testing.assert_array_equal(form.to_port(reference), port)
    assert form.to_port(reference).dtype == port.dtype
    if form.inner is None:
        made = form.tensor_to_reference(torch.from_numpy(port))
        np.testing.assert_array_equal(made.numpy(), reference)
        mask = torch.from_numpy(reference)
        written = eval(ast.unparse(mask_of_port(ast.Name("mask"), form.to_json())), {"mask": mask})
        np.testing.assert_array_equal(written.numpy() < -5e3, port < -5e3)


@pytest.mark.parametrize(
    ("port", "reference"),
    [
        (ALLOWED.astype("float32"), ALLOWED),
        (np.where(ALLOWED, 0.0, -1e9), np.where(ALLOWED, 0.0, -1e9)),
        (np.where(ALLOWED, 0.5, -1e9), ALLOWED),
        (np.zeros((12, 12)), ALLOWED),
        (np.random.default_rng(0).standard_normal((12, 12)), ALLOWED),
    ],
)
def test_what_is_written_alike_or_is_no_mask_has_no_such_form(port: np.ndarray, reference: np.ndarray) -> None:
    assert other_truths(port, reference) is None
