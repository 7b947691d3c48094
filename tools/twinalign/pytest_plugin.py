"""The pytest plugin: `@pytest.mark.twinalign("case.py")` and the fixture `alignment`.

    @pytest.mark.twinalign("case.py", stages=["forward", "loss"])
    def test_port(alignment):
        assert alignment.stages["forward"].verdict == "aligned"

A marked test that uses the fixture gets the run and fails if it is not aligned. The verdict, and the verdict and
greatest differences of each stage, are written into JUnit XML as properties of the test. Recordings are kept in
pytest's cache, so that unchanged ones are reused.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from twinalign import api
from twinalign.api.arguments import Result
from twinalign.errors import TwinalignError
from twinalign.testing import check

if TYPE_CHECKING:
    from twinalign.runs.run_result import RunResult
    from twinalign.runs.session import Session

_MARKER = "twinalign(case, **options): the case that the fixture `alignment` runs; options as in twinalign.run"
_RUN = pytest.StashKey["tuple[RunResult, Path]"]()
_SESSION = pytest.StashKey["Session"]()


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, for `--strict-markers`."""
    config.addinivalue_line("markers", _MARKER)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the processes that the tests shared."""
    if _SESSION in config.stash:
        config.stash[_SESSION].close()


@pytest.fixture
def alignment(request: pytest.FixtureRequest) -> RunResult:
    """The run of the case in the test's `twinalign` marker; unless it is aligned, the test fails when called.

    A mistake of the user or a crashed side is an error of the fixture, in one line.

    Raises:
        pytest.UsageError: the test has no such marker.
    """
    marker = request.node.get_closest_marker("twinalign")
    if marker is None or len(marker.args) != 1:
        raise pytest.UsageError(
            f"{request.node.nodeid}: the fixture alignment needs a case: mark the test with "
            '@pytest.mark.twinalign("case.py")'
        )
    options = {"out": _folder(request), **marker.kwargs}
    result = _or_fail(TwinalignError, functools.partial(_session(request.config).run, marker.args[0], **options))
    request.node.stash[_RUN] = result, Path(options["out"])
    # Not with the fixture record_property, which warns with the default JUnit family.
    request.node.user_properties.extend(properties(result))
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Fail a test whose case is not aligned, before its own code runs."""
    if _RUN in item.stash:
        _or_fail(AssertionError, functools.partial(check, *item.stash[_RUN]))


def _or_fail(kind: type[Exception], function: Callable[[], Result]) -> Result:
    """The function's result; an error of that kind fails the test with its message alone."""
    try:
        return function()
    except kind as error:
        problem = str(error)
    pytest.fail(problem, pytrace=False)  # outside of the except block, or pytest would show the error twice


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


def _session(config: pytest.Config) -> Session:
    """The session of all tests of this pytest process: each framework is imported once, and forks for every test."""
    if _SESSION not in config.stash:
        config.stash[_SESSION] = api.session()
    return config.stash[_SESSION]


def _folder(request: pytest.FixtureRequest) -> Path:
    """A separate folder for each test: parallel tests must not share recordings."""
    name = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:16]
    cache = request.config.cache
    return Path(cache.mkdir("twinalign")) / name if cache else request.getfixturevalue("tmp_path") / "twinalign"
