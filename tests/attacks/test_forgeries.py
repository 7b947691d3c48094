"""`verify` against forgers, and beside honest bundles that look odd; see `forgeries`, `honest` and `json_values`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attacks.forgeries import FORGERIES, UNSEEN, verdict_on
from tests.attacks.honest import HONEST, INCONCLUSIVE
from tests.attacks.json_values import Value, all_values, is_listed, outcome, spot
from tests.conftest import ROOT


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_that_one_bundle_shows_is_not_confirmed(name: str, compact: Path, tmp_path: Path) -> None:
    verdict, code, objection = verdict_on(compact, FORGERIES[name], tmp_path)
    assert (verdict, code) in (("suspect", 3), ("inconclusive", 3), ("diverged", 1), ("refused", 2)), objection


@pytest.mark.parametrize("name", UNSEEN)
def test_a_forgery_that_no_bundle_shows_is_listed_and_confirmed(name: str, compact: Path, tmp_path: Path) -> None:
    assert verdict_on(compact, UNSEEN[name], tmp_path) == ("confirmed", 0, "")
    assert name in (ROOT / "docs" / "how-to" / "submit-for-review.md").read_text()


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_bundle_that_looks_odd_is_confirmed(name: str, compact: Path, tmp_path: Path) -> None:
    assert verdict_on(compact, HONEST[name], tmp_path) == ("confirmed", 0, "")


@pytest.mark.parametrize("name", INCONCLUSIVE)
def test_what_decides_nothing_is_not_suspect(name: str, compact: Path, tmp_path: Path) -> None:
    assert verdict_on(compact, INCONCLUSIVE[name], tmp_path) == ("inconclusive", 3, "")


def test_tables_are_as_long_as_asked() -> None:
    assert len(FORGERIES) >= 80
    assert len(HONEST) >= 60


def test_a_value_of_json_that_is_changed_alone_is_caught_or_listed(compact: Path, tmp_path: Path) -> None:
    spots: dict[str, Value] = {}
    for member, place in all_values(compact):
        spots.setdefault(spot(member, place), (member, place))
    verdicts = {where: outcome(compact, *value, tmp_path) for where, value in [*spots.items()][::9]}
    unnoticed = [where for where, verdict in verdicts.items() if verdict == "confirmed"]
    assert [where for where in unnoticed if not is_listed(where)] == []
    assert len(unnoticed) < len(verdicts) / 2  # or nothing would be judged at all
