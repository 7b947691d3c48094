"""Two edits of one unit's program at once: found where neither suffices, and refused where they fit one draw alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.twinalign.causes.module_unit import ModuleUnit
from tests.twinalign.causes.units import Case, doing, unit, values_of
from tests.twinalign.causes.units import case as fault
from twinalign.causes import proving
from twinalign.causes.layers import explaining
from twinalign.causes.layers.subject import LayerSubject
from twinalign.causes.proving import prove

TOKENS = (3, 4, 6)


def _right(s: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.abs().cumsum(1) + y.cos().exp()


def _edited_twice(s: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.abs().cumprod(1) + y.sin().exp()


def _edited_once(s: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.abs().cumprod(1) + y.cos().exp()


def _edited_otherwise(s: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.abs().cumprod(1) + y.tan().exp()


def _case(wrong: Any) -> Case:
    return fault("", unit(_right), doing(wrong), TOKENS, TOKENS)


RIGHT = _case(_right).right()
"""Causes are changes of this module, so that all draws of inputs go through it."""


def _drawn(wrong: Any, seed: int) -> ModuleUnit:
    """The unit with the values of another function on one draw of inputs."""
    drawn, _ = values_of(_case(wrong), seed)
    drawn.call = RIGHT
    return drawn


def _examined(first: Any, second: Any) -> Any:
    """The unit with one function's values on the first draw of inputs and another's on the second."""
    examined = explaining.examined_unit(_drawn(first, 0), (), _drawn(second, 1))
    assert examined is not None
    return examined


@pytest.mark.slow
def test_two_edits_are_found_and_give_the_port_when_they_are_applied() -> None:
    examined = _examined(_edited_twice, _edited_twice)
    found = prove(examined)
    assert found is not None
    assert found.id == "edited_program+edited_program"
    assert "`cumprod` in place of `cumsum`" in found.text
    assert "`sin` in place of `cos`" in found.text
    assert found.evidence["remaining_error"] < 1e-11
    other = _drawn(_edited_twice, 2)
    values = LayerSubject(other).run(examined.applied)
    np.testing.assert_allclose(values["output.0"], other.port["output.0"], rtol=1e-12)


def test_where_one_edit_suffices_no_two_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proving, "_prove_two", lambda *given: pytest.fail("two are tried"))
    found = prove(_examined(_edited_once, _edited_once))
    assert found is not None
    assert found.id == "edited_program"


@pytest.mark.slow
@pytest.mark.parametrize("guarded", [True, False])
def test_two_edits_that_do_not_fit_the_second_draw_are_refused(monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    examined = _examined(_edited_twice, _edited_otherwise)
    if not guarded:
        monkeypatch.setattr(type(examined), "_fits_second_draw", lambda *given: True)
    found = prove(examined)
    assert (found is None) == guarded
    assert any("`sin` in place of `cos`" in text for text in examined.refuted) == guarded


def test_pairs_that_the_time_does_not_suffice_for_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proving, "SECONDS_OF_TWO", 0.0)
    examined = _examined(_edited_twice, _edited_twice)
    assert prove(examined) is None
    assert examined.not_tried.startswith("some of ")
    assert examined.not_tried.endswith(" together")
