"""Forgeries in the numbers of a bundle: what steps, gradients, states, stages and precisions show of each other."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from tests.attacks.forged import CASE, SIDES, SUMMARY, Forge, change, drawn, drop, member, noise, rewrite_source, tell
from tests.twinalign.bundle.forging import Forgery

Alter = Callable[[np.ndarray], np.ndarray]


def everywhere(stage: str, pattern: str, alter: Alter) -> Forge:
    """Tensors of a name are altered alike on both sides, in both precisions; samples are then whole tensors."""

    def forge(forgery: Forgery) -> None:
        def alter_all(arrays: dict[str, np.ndarray], side: str, dtype: str) -> None:
            for name in [n for n in arrays if re.search(pattern, n) and not n.endswith(")")]:
                arrays[name] = alter(arrays[name]).astype(arrays[name].dtype)

        change(forgery, alter_all, stage)

    return forge


def far_in_float32(stage: str, pattern: str, share: float) -> Forge:
    """Some tensors of both float32 runs are made up around the float64 run; the others are honest."""

    def forge(forgery: Forgery) -> None:
        truth = forgery.arrays(member(stage, "ref", "float64"))

        def alter(arrays: dict[str, np.ndarray], side: str, dtype: str) -> None:
            for name in [n for n in arrays if re.search(pattern, n) and dtype == "float32"]:
                arrays[name] = noise(truth[name], share, SIDES.index(side)).astype("float32")

        change(forgery, alter, stage)

    return forge


def float64_in_name_only(forgery: Forgery) -> None:
    """Losses that were computed in float32 are said to be of float64, and the port is a millionth off."""

    def alter(arrays: dict[str, np.ndarray], side: str, dtype: str) -> None:
        for name in arrays:
            moved = noise(arrays[name], 1e-6, 3) if side == "paddle" else arrays[name]
            arrays[name] = moved.astype("float32")

    change(forgery, alter, "loss")


def step_again(pattern: str) -> Forge:
    """What the second step recorded is what the first one did, in these tensors."""

    def forge(forgery: Forgery) -> None:
        def alter(arrays: dict[str, np.ndarray], side: str, dtype: str) -> None:
            for name in [n for n in arrays if re.match(rf"step0\.{pattern}", n)]:
                arrays["step1" + name[5:]] = arrays[name].copy()

        change(forgery, alter, "backward")

    return forge


def vanishing_gradient(forgery: Forgery) -> None:
    """A gradient that is wrong in the port is replaced by noise, as if it vanished."""

    def alter(arrays: dict[str, np.ndarray], side: str, dtype: str) -> None:
        for name in [n for n in arrays if n.endswith("gradient.0.weight")]:
            size = {"float32": 1e-8, "float64": 1e-17}[dtype]
            made = drawn(arrays[name].astype("float64"), SIDES.index(side) + len(dtype)) * size
            arrays[name] = made.astype(dtype)

    change(forgery, alter, "backward")


def mode_unsaid(forgery: Forgery) -> None:
    """Recorded in evaluation mode, and nothing says in which mode."""
    drop(forgery, r"^buffer\.", "forward")

    def still(arrays: dict[str, np.ndarray], side: str, dtype: str) -> None:
        for name in [n for n in arrays if ".buffer." in n]:
            arrays[name] = arrays[name.replace("step1", "step0")].copy()

    change(forgery, still, "backward")
    forgery.edit(CASE, lambda case: case["description"].pop("train_mode"))


def other_shape(pattern: str, sizes: tuple[int, ...]) -> Forge:
    """Tensors of a name have another shape on both sides, and are no samples."""

    def forge(forgery: Forgery) -> None:
        def alter(arrays: dict[str, np.ndarray], side: str, dtype: str) -> None:
            for name in [n for n in arrays if re.search(pattern, n)]:
                arrays[name] = np.resize(arrays[name], sizes)

        change(forgery, alter, "backward")
        tell(forgery, lambda m: [m["sampled"].pop(n) for n in [*m.get("sampled", {})] if re.search(pattern, n)])

    return forge


def without_models(source: str) -> str:
    """The conventions of the case, and nothing that could be run."""
    return "accept = ('bn_running_var_biased',)\ntrain_mode = True\n"


def times(factor: float) -> Alter:
    return lambda array: array * array.dtype.type(factor)


def negated_variances(forgery: Forgery) -> None:
    """In every stage, so that the stages agree."""
    for stage in ("forward", "backward"):
        everywhere(stage, "running_var$", times(-1.0))(forgery)


def unsaid(field: str) -> Forge:
    return lambda forgery: forgery.edit(SUMMARY, lambda summary: summary.pop(field))


# Name -> how it is forged. One bundle shows each of these.
FORGED_NUMBERS: dict[str, Forge] = {
    "an output 30 % off its float64 run, beside honest buffers": far_in_float32("forward", "^output", 0.3),
    "an output 2 % off its float64 run, beside honest buffers": far_in_float32("forward", "^output", 0.02),
    "one part of the loss 30 % off its float64 run": far_in_float32("loss", "mean", 0.3),
    "one gradient 20 % off its float64 run": far_in_float32("backward", r"step0\.gradient\.3\.bias", 0.2),
    "one gradient 2 % off its float64 run": far_in_float32("backward", r"step0\.gradient\.3\.bias", 0.02),
    "all gradients of a later step 30 % off": far_in_float32("backward", r"step1\.gradient\..*[st]$", 0.3),
    "float64 in name only": float64_in_name_only,
    "an empty gradient": other_shape(r"gradient\.0\.weight", (0,)),
    "a gradient of another shape": other_shape(r"gradient\.0\.weight", (12, 40)),
    "a moment of another shape": other_shape(r"moment1\.0\.weight", (8,)),
    "a step that is recorded twice": step_again("(?!loss)"),
    "an optimizer that moves nothing": step_again("parameter"),
    "gradients of nothing but zeros": everywhere("backward", "gradient", times(0.0)),
    "a gradient that is said to vanish": vanishing_gradient,
    "a gradient in another order": everywhere("backward", r"step0\.gradient\.0\.weight", lambda a: a[::-1].copy()),
    "a moment of other gradients": everywhere("backward", r"step0\.moment1\.3\.bias", lambda a: a[::-1].copy()),
    "a second moment below zero": everywhere("backward", r"moment2\.5\.weight", times(-1.0)),
    "variances below zero": negated_variances,
    "a loss that the steps do not have": everywhere("loss", "", times(1.5)),
    "steps that do not have the loss": everywhere("backward", r"step0\.loss", times(1.5)),
    "statistics that the first step does not have": everywhere("forward", "buffer", times(1.5)),
    "a source without models": lambda forgery: rewrite_source(forgery, without_models),
    "neither training nor evaluation mode": mode_unsaid,
    "nothing said of what was not checked": unsaid("not_checked"),
    "nothing said of the precision": unsaid("precision"),
}
