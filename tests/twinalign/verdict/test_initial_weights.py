"""Initial weights: torch's own initialisers are told apart, named, and never called different from themselves."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.twinalign.bundle.forging import Forgery
from twinalign.bundle.verifying import verify_bundle
from twinalign.files.recordings import Recording
from twinalign.verdict.initial_scale import fitting_factors
from twinalign.verdict.initial_weights import CAUSES, InitialWeights, compare_initial
from twinalign.verdict.initializers import families_of, fitting
from twinalign.verdict.stage_recordings import StageRecordings

pytestmark = pytest.mark.usefixtures("kept_processes")

Draw = Callable[[torch.Tensor], Any]


def recording(
    draw: Draw, seeds: range, shape: tuple[int, ...] = (64, 100), layer: str = "Linear", name: str = "layer.weight"
) -> Recording:
    """What a side records of one parameter that `draw` fills."""
    values = []
    for seed in seeds:
        torch.manual_seed(seed)
        tensor = torch.empty(shape)
        draw(tensor)
        values.append(tensor.numpy().copy())
    found = np.stack(values).reshape(len(seeds), -1)
    extremes = np.stack([found.min(1), found.max(1)], axis=1).astype(np.float64)
    about = {"shapes": {name: list(shape)}, "own_names": {name: name}, "classes": {name: layer}, "tied": []}
    return Recording({f"draws/{name}": found[:, :4096], f"extremes/{name}": extremes}, {"initial": about})


def compared(reference: Draw, port: Draw, start: int = 0, **options: Any) -> InitialWeights:
    sides = {
        ("ref", "float32"): recording(reference, range(start, start + 4), **options),
        ("paddle", "float32"): recording(port, range(start + 50, start + 54), **options),
    }
    return compare_initial(StageRecordings(sides))


FANS = ("fan_in", "fan_out")
INITIALISERS: dict[str, Draw] = {
    "Kaiming uniform(a=√5) by fan_in": lambda w: nn.init.kaiming_uniform_(w, a=5**0.5),
    "Kaiming uniform by fan_in": lambda w: nn.init.kaiming_uniform_(w, nonlinearity="relu"),
    "Kaiming normal by fan_out": lambda w: nn.init.kaiming_normal_(w, mode="fan_out", nonlinearity="relu"),
    "Xavier uniform": nn.init.xavier_uniform_,
    "Xavier normal": nn.init.xavier_normal_,
    "normal, deviation 0.02": lambda w: nn.init.trunc_normal_(w, std=0.02),
    "normal, deviation 0.02, truncated at 2 deviations": lambda w: nn.init.trunc_normal_(w, std=0.02, a=-0.04, b=0.04),
    "uniform within ±0.3": lambda w: nn.init.uniform_(w, -0.3, 0.3),
}


@pytest.mark.parametrize("name", INITIALISERS)
def test_an_initialiser_of_torch_is_named(name: str) -> None:
    draws = recording(INITIALISERS[name], range(4)).arrays["draws/layer.weight"]
    assert fitting(draws, (64, 100))[0].name == name


@pytest.mark.parametrize("name", INITIALISERS)
@pytest.mark.parametrize("shape", [(64, 100), (4, 3), (16, 3, 3, 3)])
def test_an_initialiser_does_not_differ_from_itself(name: str, shape: tuple[int, ...]) -> None:
    for start in range(0, 2000, 100):
        found = compared(INITIALISERS[name], INITIALISERS[name], start, shape=shape)
        assert (found.verdict, found.differences) == ("aligned", [])


@pytest.mark.parametrize("reference", INITIALISERS)
@pytest.mark.parametrize("port", INITIALISERS)
def test_any_two_initialisers_differ(reference: str, port: str) -> None:
    if reference == port:
        return
    [found] = compared(INITIALISERS[reference], INITIALISERS[port], shape=(100, 64)).differences
    assert found.cause in CAUSES
    assert found.remedy is not None


def test_a_deviation_a_tenth_too_large_is_found() -> None:
    wide: Draw = lambda w: nn.init.normal_(w, std=0.022)  # noqa: E731
    for start in range(0, 2000, 100):
        [found] = compared(INITIALISERS["normal, deviation 0.02"], wide, start, shape=(100, 100)).differences
        assert found.cause == "initializer_scale_differs"
        assert found.remedy == "paddle.nn.initializer.Normal(0, 0.02)"


def test_a_scale_without_a_name_is_said_to_be_the_factors_that_fit() -> None:
    gained: Draw = lambda w: nn.init.xavier_uniform_(w, gain=5 / 3 * 0.97)  # noqa: E731
    [found] = compared(lambda w: nn.init.xavier_uniform_(w, gain=0.97), gained).differences
    assert found.text.endswith(" times the reference's; 5/3 (the gain of tanh) fits")
    assert found.cause == "initializer_scale_differs"
    tanh = [lambda w, mode=mode: nn.init.kaiming_normal_(w, mode=mode, nonlinearity="tanh") for mode in FANS]
    [found] = compared(*tanh, shape=(512, 64)).differences
    assert "; the scale by fan_out in place of fan_in fits" in found.text
    [found] = compared(gained, lambda w: nn.init.xavier_uniform_(w, gain=1.1)).differences
    assert " fits" not in found.text


def test_a_scale_that_depends_on_the_depth_is_said_so() -> None:
    names = [f"blocks.{number}.mlp.weight" for number in range(6)]
    rng = np.random.default_rng(0)
    whole, by_count, by_place = (rng.normal(0.0, 0.02 / factor, 40_000) for factor in (1.0, 12**0.5, 10**0.5))

    def fitting_in(reference: np.ndarray, port: np.ndarray) -> list[str]:
        return fitting_factors(reference, port, (200, 200), names[4], [*names, "head.weight"])

    assert "one over √(2 · the number of its layers, 6)" in fitting_in(whole, by_count)
    assert "√(2 · the number of its layers, 6)" in fitting_in(by_count, whole)
    assert fitting_in(whole, by_place) == ["one over √(2 · its layer's place, 5)"]
    assert fitting_in(whole, whole * 0.9) == []
    assert fitting_factors(whole, by_count, (200, 200), "head.weight", names) == []


def test_parts_that_are_stacked_in_one_tensor_have_fans_of_their_own() -> None:
    def by_parts(w: torch.Tensor) -> None:
        for part in w.chunk(3):
            nn.init.xavier_uniform_(part)

    [found] = compared(by_parts, nn.init.xavier_uniform_, shape=(192, 64)).differences
    assert found.reference == "Xavier uniform of each of 3 stacked parts"
    assert found.port.startswith("Xavier uniform")
    assert found.cause is not None


def test_initialisers_that_the_draws_do_not_tell_apart_are_all_said() -> None:
    [found] = compared(INITIALISERS["Kaiming normal by fan_out"], nn.init.xavier_uniform_, shape=(80, 80)).differences
    assert found.reference == "Kaiming normal by fan_in (Kaiming normal by fan_out fits as well)"
    assert found.port.startswith("Xavier uniform")


def test_a_convolution_may_start_as_a_matrix_does_and_few_values_tell_its_family() -> None:
    def as_matrix(w: torch.Tensor) -> None:
        nn.init.xavier_uniform_(w.view(w.shape[0], -1))

    [found] = compared(as_matrix, nn.init.xavier_uniform_, shape=(16, 3, 2, 2), layer="Conv2D").differences
    assert found.reference == "Xavier uniform of the weight as one matrix"
    assert "normal" not in found.port
    assert found.remedy == "paddle.nn.initializer.Uniform(-0.46291, 0.46291)"


def test_nothing_is_to_be_written_where_the_values_fit_two_families() -> None:
    [found] = compared(nn.init.xavier_uniform_, nn.init.zeros_, shape=(1, 4)).differences
    assert re.search(" fits? as well\\)$", found.reference)
    assert found.remedy is None


def test_what_is_no_weight_has_a_round_number_rather_than_a_fan() -> None:
    def codes(w: torch.Tensor) -> None:
        nn.init.normal_(w, 0.0, 0.3)

    for name, said, remedy in (
        ("layer.codebook", "normal, deviation 0.3 (Kaiming normal by fan_out fits as well)", "Normal(0, 0.3)"),
        (
            "layer.weight",
            "Kaiming normal by fan_out (normal, deviation 0.3 fits as well)",
            "Normal(0.0, 0.288675)",
        ),
    ):
        [found] = compared(codes, lambda w: nn.init.uniform_(w, 0.0, 0.3), shape=(24, 8), name=name).differences
        assert (found.reference, found.port) == (said, "uniform from 0 to 0.3")
        assert found.remedy == f"paddle.nn.initializer.{remedy}"
        assert found.cause == "initializer_family_differs"


def test_few_values_do_not_tell_families_apart() -> None:
    few, many = (np.random.default_rng(0).standard_normal((4, size)) for size in (6, 4096))
    assert families_of(few) == {"normal", "truncated normal", "uniform"}
    assert families_of(many) == {"normal"}


def test_constants_and_tables_are_compared_exactly() -> None:
    table = torch.sin(torch.arange(6400.0)).reshape(64, 100)
    moved = table.clone()
    moved[3, 5] += 1e-4

    def half_drawn(start: torch.Tensor) -> Draw:
        def draw(weight: torch.Tensor) -> None:
            weight.copy_(start)
            weight[32:].normal_()

        return draw

    assert compared(nn.init.zeros_, nn.init.zeros_).verdict == "aligned"
    [found] = compared(nn.init.zeros_, nn.init.ones_).differences
    assert (found.text, found.cause) == (
        "constant in the reference, constant in the port",
        "initial_constant_differs",
    )
    [found] = compared(nn.init.zeros_, nn.init.normal_).differences
    assert (found.cause, found.remedy) == ("initial_value_random", "paddle.nn.initializer.Constant(0)")
    assert compared(half_drawn(table), half_drawn(table)).verdict == "aligned"
    [found] = compared(half_drawn(table), half_drawn(moved)).differences
    assert found.text.startswith("values that no seed changes differ by up to ")


def test_a_sign_that_all_seeds_draw_alike_is_no_constant() -> None:
    """Such as the one number of a spectral norm's vector, behind a layer with one output."""

    def signs(*values: float) -> Any:
        given = iter(values)
        return recording(lambda weight: weight.fill_(next(given)), range(4), (1,))

    def judged(reference: Any, port: Any) -> list[str]:
        sides = {("ref", "float32"): reference, ("paddle", "float32"): port}
        return [one.text for one in compare_initial(StageRecordings(sides)).differences]

    assert judged(signs(1, -1, 1, 1), signs(1, 1, 1, 1)) == []
    assert judged(signs(-1, -1, -1, -1), signs(1, 1, -1, 1)) == []
    assert judged(signs(1, -1, 1, 1), signs(2, 2, 2, 2)) == ["random in the reference, constant in the port"]


def with_tables(*tables: torch.Tensor) -> StageRecordings:
    """Each side with a table that no seed changes, beside a tensor that is drawn, without which it has no seeds."""
    sides = []
    for table, seeds in zip(tables, (range(4), range(10, 14)), strict=True):
        side = recording(lambda weight, table=table: weight.copy_(table), seeds, tuple(table.shape))
        drawn = recording(nn.init.normal_, seeds, (12,))
        side.arrays |= {name.replace("layer", "other"): array for name, array in drawn.arrays.items()}
        about = side.metadata["initial"]
        about["shapes"]["other.weight"] = [12]
        about["own_names"]["other.weight"] = "other.weight"
        sides.append(side)
    return StageRecordings({("ref", "float32"): sides[0], ("paddle", "float32"): sides[1]})


def test_no_initialiser_is_proposed_for_a_table() -> None:
    tables = (torch.linspace(-5.0, 3.0, 12), torch.linspace(-5.0, 3.0, 12) ** 3 / 25)
    [found] = compare_initial(with_tables(*tables)).differences
    assert found.reference == "the same with every seed: mean -1, deviation 2.51, from -5 to 3"
    assert found.port.startswith("the same with every seed: mean ")
    assert (found.cause, found.remedy) == ("initial_table_differs", None)


@pytest.mark.parametrize(("moved", "verdict"), [(0, "aligned"), (1, "diverged")])
def test_a_table_of_angles_may_be_computed_in_another_precision(moved: int, verdict: str) -> None:
    places = np.arange(256, dtype=np.float64)[:, None] * 10000.0 ** (-np.arange(0, 16, 2) / 16)
    fine = np.concatenate([np.sin(places), np.cos(places)], axis=1)
    rates = torch.exp(torch.arange(0, 16, 2).float() * (-np.log(10000.0) / 16))
    angles = torch.arange(256).float()[:, None] * rates
    coarse = torch.cat([angles.sin(), angles.cos()], dim=1)
    assert np.abs(fine - coarse.numpy()).max() > 4 * np.finfo(np.float32).eps
    found = compare_initial(with_tables(coarse, torch.from_numpy(np.roll(fine, moved, axis=0)).float()))
    assert found.verdict == verdict
    words = "the same numbers in another order: moved by 1 along axis 0"
    assert [one.port for one in found.differences] == [words][:moved]


@pytest.mark.parametrize("shape", [(32, 100), (16, 8, 3, 3)])
def test_the_gain_of_an_orthogonal_matrix_is_said(shape: tuple[int, ...]) -> None:
    def orthogonal(gain: float, seeds: range) -> Recording:
        found = recording(lambda weight: nn.init.orthogonal_(weight, gain), seeds, shape)
        found.arrays["gram/layer.weight"] = np.zeros(1)
        return found

    for gain, said, remedy in ((0.01, ", gain 0.01", "gain=0.01"), (1.0, "", "")):
        sides = {
            ("ref", "float32"): orthogonal(gain, range(4)),
            ("paddle", "float32"): orthogonal(2**0.5, range(9, 13)),
        }
        [found] = compare_initial(StageRecordings(sides)).differences
        assert (found.reference, found.port) == (f"orthogonal{said}", "orthogonal, gain 1.41")
        assert found.remedy == f"paddle.nn.initializer.Orthogonal({remedy})"
        assert found.cause == "initializer_scale_differs"


def test_a_reference_that_seeds_itself_gives_one_draw() -> None:
    def seeded(weight: torch.Tensor) -> None:
        torch.manual_seed(7)
        nn.init.normal_(weight, std=0.02)

    found = compared(seeded, INITIALISERS["normal, deviation 0.02"])
    assert found.verdict == "aligned"
    assert found.notes == ["no seed changes the reference's weights, so one draw of them was compared"]
    assert compared(seeded, INITIALISERS["Xavier uniform"]).verdict == "diverged"


def test_trained_weights_are_not_compared() -> None:
    heavy = torch.from_numpy(np.random.default_rng(0).standard_t(3, (64, 100)).astype(np.float32)) * 0.01
    found = compared(lambda weight: weight.copy_(heavy), nn.init.xavier_uniform_)
    assert (found.verdict, found.tensors, found.differences) == ("inconclusive", 0, [])
    assert found.notes[0].startswith("no seed changes the reference's weights, and no initialiser explains them")


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31), rows=st.integers(2, 80), columns=st.integers(2, 80), scale=st.floats(1e-6, 1e3))
def test_equal_distributions_of_any_size_and_scale_are_aligned(
    seed: int, rows: int, columns: int, scale: float
) -> None:
    def draw(weight: torch.Tensor) -> None:
        nn.init.trunc_normal_(weight, std=scale, a=-2 * scale, b=2 * scale)

    assert compared(draw, draw, seed, shape=(rows, columns)).verdict == "aligned"


CASE = """
from twinalign import Case

class Own(Case):
    initial = {initial}

    def reference(self):
        from torch import nn
        return nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.Linear(64, 10, bias=False))
    def reproduced(self):
        from paddle import nn
        return nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.Linear(64, 10, bias_attr=False))
    def inputs(self, rng):
        return {{"x": rng.standard_normal((2, 32), dtype="float32")}}
"""


def test_a_run_shows_them_and_does_not_count_them(twinalign: Any, tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(CASE.format(initial=False))
    finished = twinalign("run", path, "--out", tmp_path / "out")
    assert finished.returncode == 0, finished.stderr
    line = "Initial weights: 3 of 5 tensors start from other values in the port, first 0.weight. This does not count"
    assert line in finished.stdout
    assert "in the port; write paddle.nn.initializer.KaimingUniform(" in finished.stdout
    assert line in twinalign("report", tmp_path / "out", "--md", "-").stdout
    assert '<testsuite id="1" name="initial"' in twinalign("report", tmp_path / "out", "--junit", "-").stdout
    assert "Kaiming uniform(a=√5) by fan_in" in (tmp_path / "out" / "report.html").read_text()


TABLES = """
import numpy as np
from twinalign import Case

INDEX = np.arange(6).reshape(2, 3)

class Tables(Case):
    def reference(self):
        import torch
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.randn(6))
                self.register_buffer("index", torch.from_numpy(INDEX.copy()))
                self.register_buffer("mask", torch.ones(3, 3).triu(1))
            def forward(self, x):
                return self.weight[self.index] @ (x * self.mask)
        return Net()
    def reproduced(self):
        import paddle
        class Net(paddle.nn.Layer):
            def __init__(self):
                super().__init__()
                normal = paddle.nn.initializer.Normal(0, 1)
                self.weight = self.create_parameter([6], default_initializer=normal)
                self.register_buffer("index", paddle.to_tensor({index}))
                self.register_buffer("mask", paddle.ones([3, 3]).triu({mask}))
            def forward(self, x):
                return self.weight[self.index] @ (x * self.mask)
        return Net()
    def inputs(self, rng):
        return {{"x": rng.standard_normal((3, 3), dtype="float32")}}
"""


@pytest.mark.parametrize(
    ("index", "mask", "said"),
    [
        ("INDEX", 1, None),
        ("INDEX[::-1].copy()", 1, "index is the same for every seed, but not the same as in the reference"),
        ("INDEX[::-1].copy()", 2, "index, mask are the same for every seed, but not the same as in the reference"),
    ],
)
def test_tables_that_the_port_computes_otherwise_keep_its_values_and_are_named(
    twinalign: Any, tmp_path: Path, index: str, mask: int, said: str | None
) -> None:
    path = tmp_path / "tables.py"
    path.write_text(TABLES.format(index=index, mask=mask))
    finished = twinalign("run", path, "--out", tmp_path / "out")
    assert finished.returncode == (0 if said is None else 1), finished.stderr
    assert ("the same for every seed" in finished.stdout) is (said is not None)
    if said is not None:
        assert said in finished.stdout
        assert said in twinalign("report", tmp_path / "out", "--md", "-").stdout


def test_a_sign_that_both_sides_draw_is_given_to_the_port(twinalign: Any, tmp_path: Path) -> None:
    """Two seeds draw the same one of two values in one case of two."""
    path = tmp_path / "signs.py"
    text = TABLES.format(index="INDEX", mask=1)
    for constant, drawn in (
        ("torch.ones(3, 3).triu(1)", "torch.tensor([(-1.0) ** (torch.initial_seed() // 2)])"),
        (
            "paddle.ones([3, 3]).triu(1)",
            "paddle.to_tensor([-((-1.0) ** (paddle.get_rng_state()[0].current_seed() // 3))])",
        ),
    ):
        assert constant in text
        text = text.replace(constant, drawn)
    path.write_text(text)
    finished = twinalign("run", path, "--stages", "forward", "--out", tmp_path / "out")
    assert finished.returncode == 0, finished.stdout + finished.stderr


@pytest.mark.slow
def test_a_bundle_has_them_and_its_claim_is_checked(twinalign: Any, tmp_path: Path) -> None:
    path, bundle = tmp_path / "own.py", tmp_path / "own.zip"
    path.write_text(CASE.format(initial=False))
    twinalign("run", path, "--out", tmp_path / "out")
    packed = twinalign("pack", tmp_path / "out", bundle, "--partial")
    assert packed.returncode == 0, packed.stderr
    checked = verify_bundle(bundle)
    assert (checked.verdict, checked.initial) == (
        "confirmed",
        {"claimed": "diverged", "found": "diverged", "tensors": 5, "counts": False},
    )
    forgery = Forgery(bundle)
    forgery.edit("result/summary.json", lambda summary: summary["initial"].update(verdict="aligned", differences=[]))
    forgery.renew_manifest()
    refuted = verify_bundle(forgery.write(tmp_path / "forged.zip"))
    assert refuted.verdict == "refuted"
    assert str(refuted.mismatches[0]) == "initial: verdict is claimed as aligned, but is diverged"


def test_they_count_where_they_are_asked_for(twinalign: Any, tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(CASE.format(initial=True))
    finished = twinalign("run", path, "--stages", "initial", "--out", tmp_path / "out")
    assert finished.returncode == 1, finished.stderr
    remedy = "write paddle.nn.initializer.KaimingUniform(negative_slope=5**0.5, nonlinearity='leaky_relu')"
    assert remedy in finished.stdout


@pytest.mark.parametrize(
    ("draw", "own_shape", "remedy"),
    [
        (INITIALISERS["Kaiming uniform(a=√5) by fan_in"], (100, 64), "KaimingUniform(negative_slope=5**0.5"),
        (INITIALISERS["Kaiming uniform(a=√5) by fan_in"], (64, 100), "Uniform(-0.1, 0.1)"),
        (INITIALISERS["Kaiming normal by fan_out"], (64, 100), "Normal(0.0, 0.176777)"),
        (INITIALISERS["Xavier uniform"], (64, 100), "XavierUniform()"),
    ],
)
def test_a_remedy_holds_for_the_layout_that_the_port_has(draw: Draw, own_shape: tuple[int, ...], remedy: str) -> None:
    port = recording(lambda w: nn.init.constant_(w, 1.0), range(4))
    port.metadata["initial"]["own_shapes"] = {"layer.weight": list(own_shape)}
    sides = {("ref", "float32"): recording(draw, range(4)), ("paddle", "float32"): port}
    (found,) = compare_initial(StageRecordings(sides)).differences
    assert found.remedy is not None
    assert found.remedy.removeprefix("paddle.nn.initializer.").startswith(remedy)
    import paddle

    paddle.seed(0)
    made = paddle.create_parameter(
        list(own_shape), "float32", default_initializer=eval(found.remedy, {"paddle": paddle})
    )
    wanted = recording(draw, range(4)).arrays["draws/layer.weight"].std()
    assert made.numpy().std() == pytest.approx(wanted, rel=0.05)


def test_a_head_without_a_layer_is_tied_in_its_own_way() -> None:
    def side(names: list[str], tied: list[list[str]]) -> Recording:
        found = recording(nn.init.ones_, range(4), name=names[0])
        for name in names[1:]:
            found.arrays |= recording(nn.init.ones_, range(4), name=name).arrays
        about = found.metadata["initial"]
        about |= {"shapes": {name: [64, 100] for name in names}, "own_names": {name: name for name in names}}
        about["tied"] = tied
        return found

    both = ["embedding.weight", "head.weight"]
    reference = side(both, [both[::-1]])
    port, apart = side(both[:1], []), side(both, [])

    assert compare_initial(StageRecordings({("ref", "float32"): reference, ("paddle", "float32"): port})).verdict == (
        "aligned"
    )
    found = compare_initial(StageRecordings({("ref", "float32"): reference, ("paddle", "float32"): apart}))
    assert found.verdict == "diverged"
    assert found.notes == [
        "head.weight and embedding.weight are one tensor on one side, the reference's alone: they train differently"
    ]
