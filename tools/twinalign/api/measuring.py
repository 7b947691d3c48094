"""Planted faults, and the models that both frameworks ship."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinalign.api.arguments import Progress, names_unknown_options, quiet, settings_of
from twinalign.case.definition import Case
from twinalign.runs.options import PathLike

if TYPE_CHECKING:
    from twinalign.model_zoo.align_architectures import ZooResult
    from twinalign.planted_faults.selftest import SelftestResult
    from twinalign.planted_faults.source_selftest import RepairSelftest


@names_unknown_options
def selftest(
    case: PathLike | type[Case],
    *,
    faults: Sequence[str] = (),
    fix: int = 0,
    out: PathLike = "result/selftest",
    device: str = "cpu",
    ranks: int = 1,
    ref_python: str | None = None,
    paddle_python: str | None = None,
    options: Mapping[str, Any] | None = None,
    locate: bool = True,
    debug: bool = False,
    progress: Progress = quiet,
) -> SelftestResult | RepairSelftest:
    """Plant faults into a port (with `ranks=N`, between its N processes), and see whether each is found and explained.

    With `fix=N`, N faults are drawn by lot and planted in the port's source, and `fix` has to repair them.

    >>> selftest("case.py", faults=["layer_norm_epsilon"], locate=False).summary()["detected"]  # doctest: +SKIP
    1
    """
    settings = settings_of(locals(), "faults", "fix", "locate")
    from twinalign.planted_faults.ranks import selftest_of
    from twinalign.planted_faults.source_selftest import selftest_of_fix

    if fix:
        return selftest_of_fix(settings, fix, progress)
    return selftest_of(settings, list(faults), locate, progress).run()


def zoo(
    *names: str,
    out: PathLike = "result/zoo",
    size: int = 224,
    device: str = "cpu",
    ref_python: str | None = None,
    paddle_python: str | None = None,
    progress: Progress = quiet,
) -> ZooResult:
    """Align the architectures that torchvision and paddle.vision share: the named ones, or all.

    >>> result = zoo("resnet18", size=32)  # doctest: +SKIP
    >>> result.counts, result.outcomes[0].matched  # doctest: +SKIP
    ({'aligned': 1}, {'name': 102})
    """
    from twinalign.model_zoo.align_architectures import run_zoo

    pythons = {"ref": ref_python, "paddle": paddle_python}
    return run_zoo(names, out=Path(out), size=size, device=device, pythons=pythons, progress=progress)
