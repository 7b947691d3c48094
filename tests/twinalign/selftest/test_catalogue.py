"""The catalogue: as large as promised, framework-free, with causes that can be found."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from twinalign.explain.registry import hypotheses
from twinalign.selftest import catalogue as module
from twinalign.selftest.catalogue import KINDS, catalogue, in_model


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


def test_every_cause_can_be_found() -> None:
    known = {hypothesis.id for hypothesis in hypotheses()}
    # What only a whole training shows has no place that a hypothesis could be tried at.
    assert {f.id for f in catalogue().values() if f.kind != "train" and not known & set(f.causes)} == set()


def test_a_fault_without_words_is_refused() -> None:
    with pytest.raises(ValueError, match="nameless: give a kind of weights, forward"):

        @in_model("forward", lambda survey: None, causes=())
        def nameless(place: object) -> None: ...


def test_a_name_is_given_once() -> None:
    first = next(iter(catalogue()))

    def plant(place: object) -> None:
        """Something is wrong."""

    plant.__name__ = first
    with pytest.raises(ValueError, match=f"{first}: there is a fault of this name in twinalign.selftest.faults"):
        in_model("forward", lambda survey: None, causes=())(plant)


def test_the_catalogue_needs_no_framework() -> None:
    code = (
        f"import sys; from {module.__name__} import catalogue; assert catalogue(); "
        "print([name for name in ('torch', 'paddle', 'PIL') if name in sys.modules])"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "[]"
