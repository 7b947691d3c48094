"""The verdict: structure, arbiter, floor, zeros, kinks, tolerances; messages are pinned."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import paddle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinalign.errors import InputError
from twinalign.files.recordings import sample
from twinalign.verdict import Allowance, Comparison, Described, compare_arrays
from twinalign.verdict.case_allowances import allowances_for, allowances_of_classes, bound_of_classes

RNG = np.random.default_rng(0)
LOGITS = RNG.standard_normal((4, 10)).astype("f4")


def one(first: np.ndarray, second: np.ndarray, **options: Any) -> Any:
    return compare_arrays({"x": first}, {"x": second}, **options).tensors[0]


class Product:
    """A product of matrices, with its rounding: float32 and float64 runs, optionally in another summation order."""

    def __init__(self, seed: int = 0, depth: int = 3, width: int = 256, scale: float = 1.0) -> None:
        rng = np.random.default_rng(seed)
        self.x = (scale * rng.standard_normal((16, width))).astype("f4")
        self.weights = [(rng.standard_normal((width, width)) / np.sqrt(width)).astype("f4") for _ in range(depth)]
        self.order = rng.permutation(width)

    def run(self, dtype: str, permuted: bool = False, factor: float = 1.0, index: Any = None) -> np.ndarray:
        x = self.x.astype(dtype)
        for layer, weight in enumerate(self.weights):
            weight = weight.astype("f8")
            if layer == 1 and factor != 1.0:
                weight[... if index is None else index] *= factor
            weight = weight.astype(dtype)
            x = np.tanh(x[:, self.order] @ weight[self.order] if permuted else x @ weight)
        return x

    def compare(self, factor: float = 1.0, index: Any = None, **options: Any) -> Comparison:
        return compare_arrays(
            {"y": self.run("f4")},
            {"y": self.run("f4", True, factor, index)},
            reference64={"y": self.run("f8")},
            reproduced64={"y": self.run("f8", True, factor, index)},
            **options,
        )


STRUCTURE = [
    (LOGITS, LOGITS[:1], "shape [4, 10] against [1, 10]"),
    (LOGITS, LOGITS.reshape(-1), "shape [4, 10] against [40]; it is the reference reshaped to [40]"),
    (LOGITS, LOGITS.T, "shape [4, 10] against [10, 4]; it is the reference with its axes in the order [1, 0]"),
    (LOGITS, LOGITS.astype("f8"), "dtype float32 against float64"),
    (np.float32(1).reshape(()), np.ones(1, "f4"), "shape [] against [1]; the values are equal"),
    (np.float32(1).reshape(()), np.full(1, 1.5, "f4"), "shape [] against [1]; the values differ by up to 0.5"),
    (np.array([1.0, np.nan]), np.array([1.0, 2.0]), "1 element is NaN or infinite on one side only, first at [1]"),
    (np.array([np.inf, 1]), np.array([-np.inf, 1]), "1 element is NaN or infinite on one side only, first at [0]"),
    (np.array([1, 2]), np.array([1, 3]), "1 of 2 integers differ, by up to 1"),
    (np.array([0], "u1"), np.array([255], "u1"), "1 of 1 integers differ, by up to 255"),
    (np.array([-(2**63)]), np.array([2**63 - 1]), "1 of 1 integers differ, by up to 1.84467e+19"),
    (np.array([True]), np.array([False]), "1 of 1 values differ"),
]


@pytest.mark.parametrize(("first", "second", "reason"), STRUCTURE, ids=[row[2] for row in STRUCTURE])
def test_structure_decides_first(first: np.ndarray, second: np.ndarray, reason: str) -> None:
    tensor = one(first, second)
    assert (tensor.verdict, tensor.reason) == ("diverged", reason)


def test_a_shape_of_ones_does_not_hide_the_numbers() -> None:
    tensor = one(np.full((2, 1), 2.0, "f4"), np.full((2,), 2.5, "f4"))
    assert (tensor.max_abs, tensor.reference_value, tensor.reproduced_value) == (0.5, 2.0, 2.5)
    found = compare_arrays({"loss": np.float32(1).reshape(())}, {"loss": np.ones(1, "f4")})
    assert found.classic.quirks == ["loss: reprod_log transposes or broadcasts () against (1,)"]


def small(seed: int = 0) -> np.ndarray:
    """Values around 1e-7."""
    return (1e-7 * np.random.default_rng(seed).standard_normal(200)).astype("f4")


@pytest.mark.parametrize(
    ("port", "verdict", "reason"),
    [
        (-small(), "diverged", "; it is the reference times -1"),
        (small() * np.float32(1.01), "diverged", "; it is the reference times 1.01"),
        (small() * (1 + 0.01 * np.random.default_rng(2).standard_normal(200)).astype("f4"), "diverged", ""),
        (np.nextafter(small(), np.float32(1)), "aligned", ""),
        (small(1), "inconclusive", "; below 1e-05 it may be rounding of zeros: float64 runs (--ref64, --paddle64) can"),
    ],
)
def test_tolerances_follow_the_size_of_a_small_tensor(port: np.ndarray, verdict: str, reason: str) -> None:
    tensor = one(small(), port)
    assert tensor.verdict == verdict
    size = float(np.sqrt(np.mean(small().astype("f8") ** 2)))
    assert tensor.atol == pytest.approx(1e-3 * size, rel=1e-2)
    assert (
        f"the tolerances of float32, limited to 0.001 of its own size, {size:.2g} (rtol 1.3e-06, atol " in tensor.reason
    )
    assert reason in tensor.reason


def test_tolerances_of_a_tensor_that_is_not_small_are_torchs() -> None:
    tensor = one(np.full(4, 0.1, "f4"), np.full(4, 0.1, "f4") + np.float32(9e-6))
    assert tensor.reason == "within the tolerances of float32 (rtol 1.3e-06, atol 1e-05)"


def test_names_that_one_side_lacks_are_each_named() -> None:
    found = compare_arrays({"a": LOGITS, "b": LOGITS}, {"a": LOGITS, "c": LOGITS})
    assert {tensor.name: tensor.reason for tensor in found.tensors if tensor.verdict == "diverged"} == {
        "b": "missing in the reproduction: float32 [4, 10]",
        "c": "not in the reference: float32 [4, 10]",
    }
    assert found.verdict == "diverged"


def test_nothing_is_not_equal_to_nothing() -> None:
    with pytest.raises(InputError, match=r"^nothing to compare: no tensors$"):
        compare_arrays({}, {})
    with pytest.raises(InputError, match=r"^nothing to compare: no tensor is left after y\*$"):
        compare_arrays({"x": LOGITS}, {"x": LOGITS}, only=["y*"])
    with pytest.raises(InputError, match=r"^nothing to compare: every tensor is empty$"):
        compare_arrays({"x": np.zeros((0, 3))}, {"x": np.zeros((0, 3))})


def test_all_nan_is_no_proof() -> None:
    tensor = one(np.full(3, np.nan), np.full(3, np.nan))
    assert (tensor.verdict, tensor.reason) == ("inconclusive", "every element is NaN or infinite on both sides")


def test_same_nonfinite_positions_and_empty_tensors_pass_beside_others() -> None:
    first = {"a": np.array([1.0, np.nan, np.inf]), "b": np.zeros((0, 2)), "c": np.array(2.0)}
    assert compare_arrays(first, dict(first)).verdict == "aligned"


def test_tolerances_are_torchs_and_said_to_be_all_there_is() -> None:
    import torch

    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        base = torch.linspace(0.5, 2, 40).to(dtype)
        for shift in (1e-9, 1e-7, 1e-6, 5e-6, 1e-5, 1e-3, 1e-2, 5e-2):
            other = (base.double() * (1 + shift)).to(dtype)
            try:
                torch.testing.assert_close(other, base)
                expected = "aligned"
            except AssertionError:
                expected = "diverged"

            kind = ml_dtypes.bfloat16 if dtype == torch.bfloat16 else str(dtype).removeprefix("torch.")
            arrays = [{"x": tensor.double().numpy().astype(kind)} for tensor in (base, other)]
            found = compare_arrays(*arrays)
            assert found.verdict == expected, (dtype, shift)
    assert found.notes == [
        "1 of 1 tensors were judged by tolerances: "
        "there was no float64 recording and no repeat to measure rounding with"
    ]


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (
            np.zeros(2, ml_dtypes.bfloat16),
            np.zeros(2, "u2"),
            "no type holds the numbers of both bfloat16 and uint16",
        ),
        (np.array([2**63], "u8"), np.array([0]), "no type holds the numbers of both uint64 and int64"),
        (np.array([2**62 + 1], "u8"), np.array([2**62]), "1 of 1 integers differ, by up to 1"),
    ],
)
def test_element_types_without_a_common_one(first: np.ndarray, second: np.ndarray, reason: str) -> None:
    """float64, numpy's answer for int64 beside uint64, would call the last pair equal."""
    tensor = compare_arrays({"x": first}, {"x": second}, check_dtype=False).tensors[0]
    assert (tensor.verdict, tensor.reason) == ("diverged", reason)
    strict = compare_arrays({"x": first}, {"x": second}).tensors[0]
    assert (strict.verdict, strict.reason.split(" (")[0]) == ("diverged", f"dtype {first.dtype} against {second.dtype}")


@pytest.mark.parametrize("wrong", [float("nan"), -1.0])
def test_tolerances_that_pass_everything_are_refused(wrong: float) -> None:
    for tolerances in ({"rtol": wrong, "atol": 0.0}, {"rtol": 0.0, "atol": wrong}):
        with pytest.raises(InputError, match="--rtol and --atol: numbers from 0 up"):
            compare_arrays({"x": LOGITS}, {"x": LOGITS + 1}, **tolerances)
    with pytest.raises(InputError, match="--threshold: a number from 0 up"):
        compare_arrays({"x": LOGITS}, {"x": LOGITS + 1}, classic_threshold=wrong)


@pytest.mark.parametrize("kind", ["f4", "f8", "i4", "c8", "f2"])
def test_byte_order_is_no_difference(kind: str) -> None:
    numbers = np.arange(1, 7).astype(kind)
    swapped = numbers.astype(f">{kind}")
    assert compare_arrays({"x": swapped}, {"x": numbers}).tensors[0].reason == "identical"
    wrong = compare_arrays({"x": swapped}, {"x": (numbers + 1).astype(f">{kind}")}).tensors[0]
    assert (wrong.verdict, wrong.max_abs, wrong.mismatched) == ("diverged", 1.0, 6)
    assert wrong.max_ulp == compare_arrays({"x": numbers}, {"x": numbers + numbers.dtype.type(1)}).tensors[0].max_ulp


def test_given_tolerances_are_what_the_note_names() -> None:
    found = compare_arrays({"x": LOGITS}, {"x": LOGITS}, rtol=0, atol=1)
    assert found.notes == ["1 of 1 tensors were judged by the given tolerances and nothing else"]


def test_given_tolerances_decide_alone_and_come_together() -> None:
    assert compare_arrays({"x": LOGITS}, {"x": LOGITS + 1e-3}, rtol=0, atol=1e-2).verdict == "aligned"
    assert compare_arrays({"x": LOGITS}, {"x": LOGITS + 1e-3}, rtol=0, atol=1e-4).verdict == "diverged"
    with pytest.raises(InputError, match="--rtol and --atol: give both or neither"):
        compare_arrays({"x": LOGITS}, {"x": LOGITS}, rtol=1e-3)


@given(
    seed=st.integers(0, 10**6),
    depth=st.integers(1, 12),
    width=st.sampled_from([4, 16, 64, 256]),
    scale=st.sampled_from([1e-3, 1.0, 100.0]),
)
@settings(max_examples=40, deadline=None)
def test_another_summation_order_is_never_an_alarm(seed: int, depth: int, width: int, scale: float) -> None:
    found = Product(seed, depth, width, scale).compare()
    assert found.verdict == "aligned", found.tensors[0].reason


@given(seed=st.integers(0, 10**6), depth=st.integers(2, 8), width=st.sampled_from([8, 64, 256]))
@settings(max_examples=40, deadline=None)
def test_one_weight_off_by_a_millionth_is_always_caught(seed: int, depth: int, width: int) -> None:
    model = Product(seed, depth, width)
    # Of the size that weights have: a millionth of one that is next to zero drowns in what a float32 epsilon leaves.
    row = seed % width
    index = (row, int(np.abs(model.weights[1][row]).argmax()))
    found = model.compare(1 + 1e-6, index)
    assert found.verdict == "diverged"
    assert "the two compute different things" in found.tensors[0].reason


def test_rounding_explains_itself() -> None:
    tensor = Product(depth=8, scale=3.0).compare(classic_threshold=1e-9).tensors[0]
    assert tensor.verdict == "rounding"
    assert tensor.reason.startswith("the float64 runs agree (")
    assert "times the reference's own rounding" in tensor.reason
    assert 0.5 < tensor.noise_ratio < 2


def test_coarse_arithmetic_is_caught_where_float64_agrees() -> None:
    model = Product()
    coarse = model.run("f4").astype("f2").astype("f4")
    found = compare_arrays(
        {"y": model.run("f4")},
        {"y": coarse},
        reference64={"y": model.run("f8")},
        reproduced64={"y": model.run("f8", True)},
    )
    assert found.verdict == "diverged"
    assert "only the lower precision is computed less accurately" in found.tensors[0].reason


@pytest.mark.parametrize("dtype", ["f2", "bfloat16"])
def test_half_precision_is_judged_by_its_own_rounding(dtype: str) -> None:
    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    model = Product()
    truth = model.run("f8")
    rng = np.random.default_rng(1)
    first = (truth + 1e-3 * rng.standard_normal(truth.shape)).astype(kind)
    second = (truth + 1e-3 * rng.standard_normal(truth.shape)).astype(kind)
    worse = (truth + 1e-1 * rng.standard_normal(truth.shape)).astype(kind)
    for port, expected in ((second, "aligned"), (worse, "diverged")):
        found = compare_arrays({"y": first}, {"y": port}, reference64={"y": truth}, reproduced64={"y": truth})
        assert found.verdict == expected


def test_without_the_ports_float64_the_floor_alone_decides_and_says_so() -> None:
    model = Product()
    first, truth = {"y": model.run("f4")}, {"y": model.run("f8")}
    found = compare_arrays(first, {"y": model.run("f4", True)}, reference64=truth)
    assert found.verdict == "aligned"
    assert found.notes[0].startswith("1 of 1 tensors have no float64 run of the reproduction that decides: ")
    found = compare_arrays(first, {"y": model.run("f4", True, 1.001)}, reference64=truth)
    assert found.verdict == "diverged"


def test_a_repeat_measures_the_floor_and_an_identical_one_does_not() -> None:
    model = Product(depth=10, scale=10.0)
    first, other = {"y": model.run("f4")}, {"y": model.run("f4", True)}
    found = compare_arrays(first, other, reference_repeat=other)
    assert (found.verdict, found.tensors[0].basis) == ("aligned", "repeat")
    assert "rounding was measured by repeating the reference" in found.notes[0]
    assert compare_arrays(first, {"y": model.run("f4", True, 1.01)}, reference_repeat=other).verdict == "diverged"
    assert compare_arrays(first, other, reference_repeat=first).tensors[0].basis == "tolerance"


def attention_bias_gradient(rng: np.random.Generator, noise: float) -> np.ndarray:
    """Gradient of a qkv bias: the middle third is zero in exact arithmetic."""
    truth = np.concatenate([np.linspace(1, 2, 64), np.zeros(64), np.linspace(-2, -1, 64)])
    return truth + noise * rng.standard_normal(192)


def test_zeros_in_exact_arithmetic_are_judged_absolutely() -> None:
    rng = np.random.default_rng(3)
    first, second = (attention_bias_gradient(rng, 1e-7).astype("f4") for _ in range(2))
    high, other = (attention_bias_gradient(rng, 1e-16) for _ in range(2))
    options = {"reference64": {"g": high}, "reproduced64": {"g": other}}
    found = compare_arrays({"g": first}, {"g": second}, **options)
    assert found.verdict == "aligned"
    assert found.tensors[0].structural_zeros == 64
    wrong = second.copy()
    wrong[64:128] += np.float32(1e-3)
    assert compare_arrays({"g": first}, {"g": wrong}, **options).verdict == "diverged"


def test_zeros_blown_up_by_an_optimizer_are_judged_by_their_gradient() -> None:
    """A normalising optimizer turns rounding into steps of full size, in float64 too: no order of the two agrees."""
    rng = np.random.default_rng(4)
    gradients = [attention_bias_gradient(rng, 1e-7).astype("f4") for _ in range(2)]
    gradients += [attention_bias_gradient(rng, 1e-16) for _ in range(2)]
    start = rng.standard_normal(192)
    after = [start - 1e-3 * np.sign(gradient) for gradient in gradients]
    names = ("step0.gradient.qkv.bias", "step0.parameter.qkv.bias")

    def arrays(index: int, kind: str, spoil: float = 0.0) -> dict[str, np.ndarray]:
        parameter = after[index].copy()
        parameter[:64] += spoil
        return {names[0]: gradients[index].astype(kind), names[1]: parameter.astype(kind)}

    def verdict(spoil: float) -> Comparison:
        return compare_arrays(
            arrays(0, "f4"),
            arrays(1, "f4", spoil),
            reference64=arrays(2, "f8"),
            reproduced64=arrays(3, "f8", spoil),
        )

    assert verdict(0.0).verdict == "aligned"
    assert verdict(1e-6).verdict == "diverged"


def test_what_an_optimizer_keeps_of_a_zero_gradient_is_judged_by_its_neighbours() -> None:
    """paddle's softmax has no exact zero: 1e-31 comes back where a mask leaves torch's gradient nothing."""
    rng = np.random.default_rng(5)
    gradient = np.concatenate([np.linspace(1, 2, 64), np.zeros(64)])
    rounded = [gradient * (1 + scale * rng.standard_normal(128)) for scale in (1e-7, 1e-7, 1e-16, 1e-16)]

    def verdict(leak: float) -> Comparison:
        sides = [rounded[0], rounded[1].copy(), rounded[2], rounded[3].copy()]
        for port in (sides[1], sides[3]):
            port[64:] = leak
        names = {"step0.gradient.conv.weight": 1.0, "step0.moment1.conv.weight": 0.1}
        first, second, high, other = (
            {name: (factor * side).astype(kind) for name, factor in names.items()}
            for side, kind in zip(sides, ("f4", "f4", "f8", "f8"), strict=True)
        )
        return compare_arrays(first, second, reference64=high, reproduced64=other)

    assert verdict(1e-31).verdict == "aligned"
    assert verdict(1e-5).verdict == "diverged"


def test_float32_constants_are_allowed_by_name_only() -> None:
    model = Product()
    found = model.compare(1 + 5e-8)
    assert found.verdict == "diverged"
    assert (
        "as small as the error of a float32 constant; if that is the cause, allow it by name" in found.tensors[0].reason
    )
    found = model.compare(1 + 5e-8, allowances=["paddle_optimizer_scalars=y*"])
    assert (found.verdict, found.tensors[0].allowed) == ("aligned", "paddle_optimizer_scalars")
    assert "allowed as paddle_optimizer_scalars" in found.tensors[0].reason
    assert model.compare(1 + 5e-8, allowances=["paddle_optimizer_scalars=z*"]).verdict == "diverged"
    assert model.compare(1 + 5e-8, allowances=[Allowance("mine", 1e-9, "too small")]).verdict == "diverged"
    with pytest.raises(InputError, match="allowance 'anything' is unknown; known are float32_epsilon"):
        model.compare(allowances=["anything"])


def test_a_constant_inside_the_network_is_allowed_as_much_as_the_rounding_of_that_tensor() -> None:
    model = Product()
    low, high = model.run("f4"), model.run("f8")
    rounding = np.linalg.norm(low - high) / np.linalg.norm(high)
    constant = Allowance("mine", 1e-12, "a slope", of_rounding=1.0)

    def off_by(share: float) -> Comparison:
        port = {"y": model.run("f8", True) * (1 + share * rounding)}
        single = {"y": port["y"].astype("f4")}
        return compare_arrays({"y": low}, single, reference64={"y": high}, reproduced64=port, allowances=[constant])

    assert off_by(0.9).tensors[0].allowed == "mine"
    assert off_by(1.1).verdict == "diverged"


def test_selu_is_known_to_keep_constants_in_float32_and_elu_is_not() -> None:
    of = "paddle.nn.layer.activation."
    assert allowances_of_classes([f"{of}SELU"]) == ["paddle_activation_constant"]
    assert allowances_of_classes([f"{of}{name}" for name in ("ELU", "GELU", "PReLU", "ReLU")]) == []
    x = paddle.to_tensor(np.ones(1))
    kernel = getattr(paddle._C_ops.selu, "__wrapped__", paddle._C_ops.selu)  # without what makes it exact
    assert kernel(x, 1.0507009873554805, 1.6732632423543772).item() == float(np.float32(1.0507009873554805))
    bounds = []
    for count in (1, 3, 1000):
        named = allowances_for("forward", {"layer_classes": {f"{of}SELU": {"count": count, "bases": []}}}, {})
        bounds.append(max(a.bound for a in named if isinstance(a, Allowance) and a.id == "paddle_activation_constant"))
    assert bounds == [2.0**-23, 3 * 2.0**-23, 10 * 2.0**-23]


def test_the_momentum_of_a_batch_norm_is_allowed_to_its_statistics_alone() -> None:
    allowed = allowances_of_classes(["paddle.nn.layer.norm.BatchNorm2D"])
    assert allowed == ["paddle_batch_norm_epsilon", "paddle_batch_norm_momentum"]
    assert bound_of_classes(["paddle.nn.layer.norm.BatchNorm2D"]) == 1e-7
    for name, verdict in (("buffer.bn.running_mean", "aligned"), ("output", "diverged")):
        truth = np.linspace(1, 2, 64)
        off = {name: truth * (1 + 2.4e-7)}
        rng = np.random.default_rng(6)
        low = [{name: (a * (1 + 1e-7 * rng.standard_normal(64))).astype("f4")} for a in (truth, off[name])]
        found = compare_arrays(*low, reference64={name: truth}, reproduced64=off, allowances=allowed)
        assert found.verdict == verdict, found.tensors[0].reason


def test_accepted_conventions_are_shown_and_do_not_decide() -> None:
    first, second = {"bn.running_var": LOGITS, "x": LOGITS}, {"bn.running_var": LOGITS * 1.1, "x": LOGITS}
    assert compare_arrays(first, second).verdict == "diverged"
    found = compare_arrays(first, second, accept=["bn_running_var_biased"])
    assert found.verdict == "aligned"
    assert (found.tensors[0].verdict, found.tensors[0].accepted) == ("diverged", "bn_running_var_biased")
    assert found.counts == {"accepted": 1, "aligned": 1}
    assert compare_arrays(first, second, accept={"mine": "bn.*"}).verdict == "aligned"
    with pytest.raises(InputError, match="accept 'mine': known conventions are bn_running_var_biased"):
        compare_arrays(first, second, accept=["mine"])


def test_kinks_are_told_from_spoiled_elements() -> None:
    """A ReLU over its kink moves a filter's gradient and what lies before it; one spoiled element is no kink."""
    rng = np.random.default_rng(5)
    truth = {name: rng.standard_normal((32, 64)) for name in ("gradient.a", "gradient.b", "gradient.c")}
    noisy = [{name: (a + 1e-7 * rng.standard_normal(a.shape)).astype("f4") for name, a in truth.items()} for _ in "ab"]
    options = {"reference64": truth, "reproduced64": truth}
    kinked = {name: array.copy() for name, array in noisy[1].items()}
    kinked["gradient.b"][3] += np.float32(1e-3)
    found = compare_arrays(noisy[0], kinked, **options)
    assert found.verdict == "aligned"
    assert "as when rounding flips a few elements" in found.tensors[1].reason
    # An accepted convention differs in float64 by itself, and says nothing against a kink; what is not accepted does.
    biased = ({"running_var": np.ones(8)}, {"running_var": np.full(8, 1.1)})
    wide = [
        {**arrays, "running_var": b["running_var"].astype("f4")}
        for arrays, b in zip((noisy[0], kinked), biased, strict=True)
    ]
    both = {"reference64": {**truth, **biased[0]}, "reproduced64": {**truth, **biased[1]}}
    assert compare_arrays(*wide, **both, accept=["bn_running_var_biased"]).verdict == "aligned"
    assert compare_arrays(*wide, **both).tensors[1].verdict == "diverged"
    spoiled = {name: array.copy() for name, array in noisy[1].items()}
    spoiled["gradient.b"][3, 4] += np.float32(1e-3)
    assert compare_arrays(noisy[0], spoiled, **options).verdict == "diverged"
    coarse = {name: array.astype("f2").astype("f4") for name, array in noisy[1].items()}
    assert compare_arrays(noisy[0], coarse, **options).verdict == "diverged"
    forward = {"logits": truth["gradient.a"], **truth}
    low = [{name: forward[name].astype("f4") for name in forward} for _ in "ab"]
    low[1]["logits"][3] += np.float32(1e-3)
    assert compare_arrays(*low, reference64=forward, reproduced64=forward).verdict == "diverged"


@pytest.mark.parametrize(
    ("both", "before", "jump", "verdict"),
    [
        (False, 0.0, 1e-3, "aligned"),  # the reference's kink is as far
        (False, 0.0, 1.0, "diverged"),
        (True, 1e-4, 1e-3, "aligned"),  # the port's kink moves another filter than the one that both runs share
        (True, 0.0, 1e-3, "diverged"),
    ],
)
@pytest.mark.parametrize("sampled", [False, True])
def test_a_kink_of_the_references_own_does_not_hide_one_of_the_port(
    both: bool, before: float, jump: float, verdict: str, sampled: bool
) -> None:
    rng = np.random.default_rng(6)
    shapes = {"gradient.a": (32, 512), "gradient.b": (64,), "gradient.c": (64,)}
    truth = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    low = [{name: (a + 1e-7 * rng.standard_normal(a.shape)).astype("f4") for name, a in truth.items()} for _ in "ab"]
    for arrays in low[: 1 + both]:
        arrays["gradient.a"][3] += np.float32(1e-2)
    low[1]["gradient.a"][5] += np.float32(before)
    low[1]["gradient.b"][4] += np.float32(jump)
    described = None
    if sampled:
        for arrays in (truth, *low):
            arrays["gradient.a"] = sample(arrays["gradient.a"])
        described = {"gradient.a": Described(shapes["gradient.a"], lambda position: (position, 0))}
    found = compare_arrays(*low, reference64=truth, reproduced64=truth, described=described)
    assert found.verdict == verdict


@pytest.mark.parametrize(
    ("moved", "verdict"), [(slice(3, 4), "aligned"), (slice(None), "diverged"), (slice(0), "diverged")]
)
def test_a_kink_that_only_projections_show_is_looked_for_in_their_tensor(moved: slice, verdict: str) -> None:
    rng = np.random.default_rng(7)
    shapes = {"gradient.a": (32, 64), "gradient.b": (32, 64), "gradient.b (projections)": (8,)}
    truth = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    low = [{name: (a + 1e-7 * rng.standard_normal(a.shape)).astype("f4") for name, a in truth.items()} for _ in "ab"]
    low[1]["gradient.b"][moved] += np.float32(2e-6)
    low[1]["gradient.b (projections)"] += np.float32(1e-5)
    found = compare_arrays(*low, reference64=truth, reproduced64=truth)
    assert found.verdict == verdict


def test_samples_speak_of_the_whole_tensor() -> None:
    described = {"x": Described((100, 7), lambda position: (position * 10, 3))}
    tensor = one(np.zeros(5, "f4"), np.array([0, 0, 1, 0, 0], "f4"), described=described)
    assert (tensor.shape, tensor.worst_index) == ((100, 7), (20, 3))


def test_dtype_may_be_left_out() -> None:
    assert one(LOGITS, LOGITS.astype("f8"), check_dtype=False).verdict == "aligned"


def test_json_is_strict() -> None:
    found = compare_arrays({"x": np.array([1.0, np.nan, 2.0])}, {"x": np.array([np.inf, np.nan, 2.0])})
    text = json.dumps(found.to_json(), allow_nan=False)
    tensor = json.loads(text)["tensors"][0]
    assert (tensor["reference_value"], tensor["reproduced_value"], tensor["worst_index"]) == (1.0, "Infinity", [0])
    for key in (
        "name",
        "verdict",
        "reason",
        "shape",
        "dtype",
        "max_abs",
        "mean_abs",
        "max_rel",
        "noise_ratio",
        "fp64_rel",
    ):
        assert key in tensor


@pytest.mark.parametrize("spoil", [0.0, 1e-8, 1e-3, np.nan])
@pytest.mark.parametrize("size", [1000, (1 << 20) + 5])
def test_the_verdict_alone_is_the_same_verdict(spoil: float, size: int) -> None:
    first = np.random.default_rng(0).standard_normal(size).astype("f4")
    second = first.copy()
    second[size // 2] += np.float32(spoil)
    found = [one(first, second, everything=everything) for everything in (True, False)]
    assert found[0].verdict == found[1].verdict == ("diverged" if not spoil < 1e-4 else "aligned")
    assert found[0].reason.partition(";")[0] == found[1].reason.partition(";")[0]


@pytest.mark.parametrize("wrong", ["step0.learning_rate", "step0.parameter.a", "step0.gradient.c"])
def test_a_kink_before_what_float64_finds_wrong_is_rounding(wrong: str) -> None:
    """A step's loss and gradients come before its update; of the quantity that differs itself nothing is excused."""
    rng = np.random.default_rng(5)
    names = [f"step0.gradient.{name}" for name in "abc"]
    truth = {"step0.learning_rate": np.array(0.1)}
    truth |= {name: rng.standard_normal((32, 64)) for name in (*names, "step0.parameter.a")}
    low = [{n: (a + 1e-7 * rng.standard_normal(a.shape)).astype("f4") for n, a in truth.items()} for _ in "ab"]
    low[1]["step0.gradient.b"][3] += np.float32(1e-3)
    other = {**truth, wrong: truth[wrong] * 1.01}
    low[1][wrong] = other[wrong].astype("f4")
    found = {t.name: t for t in compare_arrays(*low, reference64=truth, reproduced64=other).tensors}
    assert found[wrong].verdict == "diverged"
    excused = wrong != "step0.gradient.c"
    assert (found["step0.gradient.b"].verdict == "rounding") is excused
    assert ("agree here and in what is computed until then" in found["step0.gradient.b"].reason) is excused
