"""The pytest plugin: `@pytest.mark.twinalign("case.py")` and the fixture `alignment`.

    @pytest.mark.twinalign("case.py", stages=["forward", "loss"])
    def test_port(alignment):
        assert alignment.stages["forward"].verdict == "aligned"

A marked test that takes the fixture is handed the run; it fails where that is not aligned. The verdict, and of
each stage the verdict and the greatest differences, are written into JUnit XML as properties of the test. Recordings
are kept in pytest's cache, so that what has not changed is not recorded again.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from twinalign import api
from twinalign.errors import TwinalignError
from twinalign.testing import check

if TYPE_CHECKING:
    from twinalign.judging import RunResult

_MARKER = "twinalign(case, **options): the case that the fixture `alignment` runs; options as of twinalign.run"
_RUN = pytest.StashKey["tuple[RunResult, Path]"]()


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, for `--strict-markers`."""
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture
def alignment(request: pytest.FixtureRequest) -> RunResult:
    """The run of the case that the test's `twinalign` marker names; unless it is aligned, the test fails when called.

    A user's mistake and a side that crashed are errors of the fixture, in one line.

    Raises:
        pytest.UsageError: the test has no such marker.
    """
    marker = request.node.get_closest_marker("twinalign")
    if marker is None or len(marker.args) != 1:
        raise pytest.UsageError(
            f"{request.node.nodeid}: the fixture alignment wants a case: mark the test with "
            '@pytest.mark.twinalign("case.py")'
        )
    options = {"out": _folder(request), **marker.kwargs}
    problem = None
    try:
        result = api.run(marker.args[0], **options)
    except TwinalignError as error:
        problem = str(error)
    if problem is not None:  # out of the except block, or pytest would show the error a second time
        pytest.fail(problem, pytrace=False)
    request.node.stash[_RUN] = result, Path(options["out"])
    # Not by the fixture record_property, which warns where the JUnit family is the default one.
    request.node.user_properties.extend(properties(result))
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Fail a test whose case is not aligned, before its own code runs."""
    if _RUN not in item.stash:
        return
    problem = None
    try:
        check(*item.stash[_RUN])
    except AssertionError as error:
        problem = str(error)
    if problem is not None:
        pytest.fail(problem, pytrace=False)


def properties(result: RunResult) -> list[tuple[str, str]]:
    """The verdicts, the greatest differences and the faults of a run, as JUnit XML's properties of a test."""
    found = [("twinalign.case", result.case), ("twinalign.verdict", result.verdict)]
    for stage, comparison in result.stages.items():
        found.append((f"twinalign.{stage}.verdict", comparison.verdict))
        for name in ("fp64_rel", "noise_ratio", "max_abs"):
            values: list[Any] = [getattr(tensor, name) for tensor in comparison.tensors]
            known = [value for value in values if value is not None]
            if known:
                found.append((f"twinalign.{stage}.{name}", f"{max(known):.3g}"))
    for fault in result.located.faults if result.located else ():
        cause = fault.explanation.id if fault.explanation else "unexplained"
        found.append(("twinalign.fault", f"{fault.paddle_layer or 'the model itself'} ({fault.phase}): {cause}"))
    return found


def _folder(request: pytest.FixtureRequest) -> Path:
    """A folder of the test's own: tests that run at the same time must not share recordings."""
    name = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:16]
    cache = request.config.cache
    return Path(cache.mkdir("twinalign")) / name if cache else request.getfixturevalue("tmp_path") / "twinalign"
