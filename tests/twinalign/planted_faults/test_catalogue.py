"""The catalogue: as large as promised, framework-free, with causes that can be found."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from types import ModuleType

import pytest

from twinalign.causes.registry import known_causes
from twinalign.planted_faults import catalogue as module
from twinalign.planted_faults.catalogue import KINDS, PlantableFault, catalogue, in_model
from twinalign.planted_faults.rank_faults import rank_faults


def test_there_are_faults_of_every_kind() -> None:
    counts = Counter(fault.kind for fault in catalogue().values())
    assert sum(counts.values()) >= 80
    assert set(counts) == set(KINDS)
    assert min(counts.values()) >= 5


def test_every_fault_says_in_one_sentence_what_is_wrong() -> None:
    for fault in catalogue().values():
        assert fault.text, fault.id
        assert not fault.text.endswith("."), fault.id
        assert len({other.id for other in catalogue().values() if other.text == fault.text}) == 1, fault.id


def causes_that_do_not_exist(page: ModuleType, faults: Iterable[PlantableFault]) -> list[tuple[str, str]]:
    """Fault and cause, for every cause that no phase has which can explain a fault of this kind."""
    known = {(cause.phase, cause.id) for cause in known_causes()}
    return [
        (fault.id, cause)
        for fault in faults
        for cause in fault.causes
        if not any((phase, cause) in known for phase in page.phases_of(fault.kind))
    ]


def test_every_cause_of_a_fault_exists(causes_page: ModuleType) -> None:
    assert all(fault.causes for fault in catalogue().values())
    assert causes_that_do_not_exist(causes_page, catalogue().values()) == []


def test_a_cause_that_does_not_exist_is_noticed(causes_page: ModuleType) -> None:
    right = catalogue()["layer_norm_epsilon"]
    mistyped = dataclasses.replace(right, causes=(*right.causes, "norm_epsilom"))
    of_another_phase = dataclasses.replace(right, causes=(*right.causes, "metric_top_k"))
    assert causes_that_do_not_exist(causes_page, [right, mistyped, of_another_phase]) == [
        ("layer_norm_epsilon", "norm_epsilom"),
        ("layer_norm_epsilon", "metric_top_k"),
    ]


def test_every_cause_of_a_fault_between_ranks_exists() -> None:
    known = {cause.id for cause in known_causes("ranks")}
    assert {fault.cause for fault in rank_faults().values()} <= known


def test_a_fault_without_words_is_refused() -> None:
    with pytest.raises(ValueError, match="nameless: give a kind of weights, forward"):

        @in_model("forward", lambda contents: None)
        def nameless(place: object) -> None: ...


def test_a_name_is_given_once() -> None:
    first, fault = next(iter(catalogue().items()))

    def plant(place: object) -> None:
        """Something is wrong."""

    plant.__name__ = first
    with pytest.raises(ValueError, match=f"{first}: there is a fault of this name: {fault.text}"):
        in_model("forward", lambda contents: None)(plant)


def test_the_catalogue_needs_no_framework() -> None:
    code = (
        f"import sys; from {module.__name__} import catalogue; assert catalogue(); "
        "print([name for name in ('torch', 'paddle', 'PIL') if name in sys.modules])"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "[]"
