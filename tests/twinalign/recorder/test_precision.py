"""Half precision is judged by the reference's own error in it; accuracy-compatible kernels are accounted for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.conftest import ROOT, KeptRun, read_summary
from twinalign import InputError
from twinalign.files.half_precision import rounded
from twinalign.files.recordings import Recording
from twinalign.runs.run_stages import compatible_kernels_note
from twinalign.verdict.stage_recordings import StageRecordings


@given(hnp.arrays(np.float32, st.integers(0, 20), elements=st.floats(width=32)))
def test_rounding_is_that_of_the_types_themselves(array: np.ndarray) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        for dtype, kind in (("bfloat16", ml_dtypes.bfloat16), ("float16", np.float16)):
            found = rounded({"x": array}, dtype)["x"]
            expected = array.astype(kind).astype(np.float32)
            np.testing.assert_array_equal(found, expected)
            assert found.dtype == np.float32


def test_other_types_and_other_precisions_are_left_alone() -> None:
    arrays = {"i": np.arange(3), "x": np.array([1.0 + 2**-30])}
    assert rounded(arrays, "bfloat16")["i"] is arrays["i"]
    assert rounded(arrays, "")["x"] is arrays["x"]
    assert rounded(arrays, "float16")["x"].dtype == np.float64


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.slow
def test_a_port_in_bfloat16_is_judged_by_the_references_error(tmp_path: Path, kept_run: KeptRun) -> None:
    case, asked = "tests.cases.variety:HalfPrecision", {"precision": "bfloat16", "locate": False}
    result = kept_run(case, out=tmp_path, **asked)  # type: ignore[arg-type]
    squares = result.stages["forward"].tensors[1]
    assert (result.verdict, squares.basis) == ("aligned", "float64")
    # The floor is bfloat16's, which is four orders above float32's; the weights are those of both runs.
    assert squares.floor_rms is not None
    assert squares.reference_max is not None
    assert squares.floor_rms > 1e-4 * squares.reference_max
    assert squares.fp64_rel is not None
    assert squares.fp64_rel < 1e-12
    weights = np.load(tmp_path / "weights" / "half_precision_ref.npz")
    assert all((weights[key] == weights[key].astype(ml_dtypes.bfloat16)).all() for key in weights)
    # A factor that bfloat16 hides is a bug all the same.
    result = kept_run(case, out=tmp_path, options={"factor": 1.001}, **asked)  # type: ignore[arg-type]
    assert result.verdict == "diverged"


def test_kernels_that_a_cpu_lacks_are_named_in_one_line(tmp_path: Path, kept_run: KeptRun) -> None:
    with pytest.raises(InputError) as caught:
        kept_run("tests.cases.variety:Everything", out=tmp_path, stages=["forward"], precision="float16")
    assert str(caught.value) == (
        "--precision float16 on a CPU: the paddle side crashed while recording forward in float16: RuntimeError: "
        "(NotFound) The kernel with key (CPU, Undefined(AnyLayout), float16) of kernel `matmul` is not registered; "
        "paddle has few kernels for it on a CPU: use --device gpu, or --precision both"
    )


def test_accuracy_compatible_kernels_are_used_and_what_they_change_is_said(tmp_path: Path, kept_run: KeptRun) -> None:
    case = "tests.cases.variety:HalfPrecision"
    result = kept_run(case, out=tmp_path, precision="float32", accuracy_compatible=True)
    flag = "FLAGS_use_accuracy_compatible_kernel"
    assert read_summary(tmp_path)["environment"]["paddle"]["flags"][flag] is True
    usual = Recording.load(tmp_path / "usual_kernels" / "forward_paddle.npy")
    assert usual.metadata["environment"]["flags"][flag] is False
    assert result.stages["forward"].notes[-1] == f"{flag} changed none of the port's 2 tensors on this device"


def note_of(tmp_path: Path, flags: dict[str, Any], change: float) -> str | None:
    path = tmp_path / "usual_kernels" / "forward_paddle.npy"
    Recording({"a": np.ones(3), "b": np.zeros(2)}).save(path)
    environment = {"flags": flags, "versions": {"paddle": "2.6.2"}}
    port = Recording({"a": np.ones(3), "b": np.array([0.0, change])}, {"environment": environment})
    recorder = SimpleNamespace(usual_kernels_path=lambda stage: path)
    recordings = StageRecordings({("ref", "float32"): port, ("paddle", "float32"): port})
    return compatible_kernels_note(recorder, "forward", recordings)  # type: ignore[arg-type]


def test_what_is_said_of_a_change_and_of_a_paddle_without_the_flag(tmp_path: Path) -> None:
    flag = "FLAGS_use_accuracy_compatible_kernel"
    assert note_of(tmp_path, {flag: True}, 0.25) == f"{flag} changed 1 of the port's 2 tensors, b the most, by 0.25"
    assert note_of(tmp_path, {}, 0.0) == (
        f"--accuracy-compatible changed nothing: paddle 2.6.2 has no {flag}, 3.3 and later have it"
    )
