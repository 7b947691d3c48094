"""Honest bundles whose steps, gradients and stages look odd: optimizers, schedules, clipping and flipped elements."""

from __future__ import annotations

import re

import numpy as np

from tests.attacks.forged import CASE, DTYPES, MANIFEST, SIDES, Forge, change, drop, member, rewrite_source, tell
from tests.twinalign.bundle.forging import Forgery

Arrays = dict[str, np.ndarray]


def own_noise(truth: np.ndarray, side: str, dtype: str, times: float = 1.0) -> np.ndarray:
    """The truth with roundings of a side's own, this many times as large as one."""
    unit = {"float32": 2.0**-24, "float64": 2.0**-53}[dtype] * times
    drawn = np.random.default_rng([SIDES.index(side), DTYPES.index(dtype)]).standard_normal(truth.shape)
    return (truth * (1 + 2 * unit * drawn)).astype(dtype)


def steps_altered(pattern: str, alter: object) -> Forge:
    """Tensors of the backward stage whose names match become `alter(array, arrays, name)`."""

    def forge(forgery: Forgery) -> None:
        def alter_all(arrays: Arrays, side: str, dtype: str) -> None:
            for name in [n for n in arrays if re.search(pattern, n)]:
                arrays[name] = np.asarray(alter(arrays[name], arrays, name), arrays[name].dtype)  # type: ignore[operator]

        change(forgery, alter_all, "backward")

    return forge


def as_velocity(decay: float) -> Forge:
    """SGD with momentum in place of Adam: the velocity is the gradient and a share of the parameter."""

    def forge(forgery: Forgery) -> None:
        drop(forgery, "moment2")

        def alter(arrays: Arrays, side: str, dtype: str) -> None:
            for name in [n for n in arrays if ".moment1." in n]:
                of_gradient, of_parameter = (
                    arrays.get(name.replace("moment1", kind), arrays[name]) for kind in ("gradient", "parameter")
                )
                arrays[name.replace("moment1", "velocity")] = (
                    of_gradient + of_parameter.dtype.type(decay) * of_parameter
                )
                del arrays[name]

        change(forgery, alter, "backward")
        for side in SIDES:
            tell(
                forgery,
                lambda m: m.update(sampled={n.replace("moment1", "velocity"): e for n, e in m["sampled"].items()}),
                ["backward"],
                side,
            )

    return forge


def both(*steps: Forge) -> Forge:
    def forge(forgery: Forgery) -> None:
        for step in steps:
            step(forgery)

    return forge


def vanishing_gradient(forgery: Forgery) -> None:
    """A bias in front of a batch norm has no gradient but rounding, which each run has for itself."""

    def alter(arrays: Arrays, side: str, dtype: str) -> None:
        size = {"float32": 1e-9, "float64": 1e-18}[dtype]
        for name in [n for n in arrays if n.endswith("gradient.0.bias")]:
            arrays[name] = own_noise(np.zeros(40) + size, side, dtype) * np.sin(np.arange(40) + len(side) + len(dtype))
            arrays[name] = arrays[name].astype(dtype)

    change(forgery, alter, "backward")


def resting(forgery: Forgery) -> None:
    """A warm-up whose second step has the rate 0."""

    def alter(arrays: Arrays, side: str, dtype: str) -> None:
        for name in [n for n in arrays if n.startswith("step0.parameter")]:
            arrays["step1" + name[5:]] = arrays[name].copy()
        arrays["step1.learning_rate"] = np.asarray(0.0)

    change(forgery, alter, "backward")


def barely_moving(forgery: Forgery) -> None:
    """A rate so small that float32 parameters stay as they are."""

    def alter(arrays: Arrays, side: str, dtype: str) -> None:
        for name in [n for n in arrays if n.startswith("step0.parameter")]:
            arrays["step1" + name[5:]] = arrays[name] * (1.0 if dtype == "float32" else 1 + 1e-12)
            arrays["step1" + name[5:]] = arrays["step1" + name[5:]].astype(arrays[name].dtype)
        arrays["step1.learning_rate"] = np.asarray(1e-12)

    change(forgery, alter, "backward")


def set_temperature(forgery: Forgery) -> None:
    """A schedule sets a temperature before the first step, which the loss stage knows nothing of."""

    def alter(arrays: Arrays, side: str, dtype: str) -> None:
        arrays["step0.temperature"] = arrays["step1.temperature"] = np.asarray(0.5)
        for name in [n for n in arrays if ".loss." in n]:
            arrays[name] = arrays[name] * arrays[name].dtype.type(2)

    change(forgery, alter, "backward")


def observed_otherwise(forgery: Forgery) -> None:
    """The forward stage calls the model twice, and its statistics move twice."""

    def alter(arrays: Arrays, side: str, dtype: str) -> None:
        for name in [n for n in arrays if n.endswith("running_mean")]:
            arrays[name] = arrays[name] * arrays[name].dtype.type(1.9)

    change(forgery, alter)
    observe = "\n\ndef observe(self, model, inputs, framework):\n    return model(inputs['x']), model(inputs['x'])\n"
    rewrite_source(forgery, lambda source: source + observe)


def drawing_losses(forgery: Forgery) -> None:
    """Both stages draw random numbers, each its own."""

    def alter(arrays: Arrays, side: str, dtype: str) -> None:
        for name in [n for n in arrays if ".loss." in n]:
            arrays[name] = arrays[name] * arrays[name].dtype.type(1.1)

    change(forgery, alter, "backward")
    tell(forgery, lambda m: m.update(draws=True), ["loss", "backward"])
    for stage in ("loss", "backward"):
        for dtype in DTYPES:
            forgery.edit(member(stage, "ref", dtype, "json"), lambda m: m.update(changed_by_draws={}))


def flipped_elements(forgery: Forgery) -> None:
    """Boxes sorted by scores: where two are alike, a float32 run has them in another order than the float64 run."""
    truth = np.random.default_rng(8).standard_normal((40, 4))

    def alter(arrays: Arrays, side: str, dtype: str) -> None:
        own = truth.copy()
        if dtype == "float32":
            own[[6, 7]] = own[[7, 6]]
        arrays["boxes"] = own_noise(own, side, dtype)

    change(forgery, alter)


def half_inside(forgery: Forgery) -> None:
    """One head computes in float16 in the float32 run."""
    truth = np.random.default_rng(9).standard_normal((16, 24))
    change(forgery, lambda a, s, d: a.update(head=own_noise(truth, s, d, 4096.0 if d == "float32" else 1.0)))


def model_by_assignment(source: str) -> str:
    """The models are made by functions of other names."""
    renamed = source.replace("def reference(", "def build_reference(").replace("def reproduced(", "def build_port(")
    return renamed + "\n\nCompact.reference, Compact.reproduced = Compact.build_reference, Compact.build_port\n"


def read_by_newer_python(forgery: Forgery) -> None:
    """The file with the models cannot be parsed by this Python, and another one assigns the conventions."""
    import hashlib

    content = b"accept = ('bn_running_var_biased',)\ntrain_mode = True\n"
    digest = hashlib.sha256(content).hexdigest()
    rewrite_source(forgery, lambda source: source + "\n\ndef later(:\n")
    forgery.members["source/conventions.py"] = content
    forgery.edit(MANIFEST, lambda m: m["source"].update({"source/conventions.py": "/home/me/conventions.py"}))
    tell(forgery, lambda m: m["code_sha256"].update({"/home/me/conventions.py": digest}))


def of_our_zoo(forgery: Forgery) -> None:
    """A run of `twinalign zoo`, whose case is twinalign's own and not packed."""
    name = "twinalign.model_zoo.case:Architecture"
    forgery.edit(CASE, lambda case: [case["identity"][side].update(case=name) for side in SIDES])
    tell(forgery, lambda m: m["identity"].update(case=name))
    rewrite_source(forgery, lambda source: "accept = ('bn_running_var_biased',)\ntrain_mode = True\n")


def clipped(array: np.ndarray, arrays: Arrays, name: str) -> np.ndarray:
    """A first moment of a gradient that was clipped by value after it was recorded."""
    gradient = arrays.get(name.replace("moment1", "gradient"), array)
    limit = 0.7 * np.abs(gradient).max(initial=0.0) if not name.endswith(")") else np.inf
    return np.clip(gradient, -limit, limit) * array.dtype.type(0.1)


# Name -> how it comes about. Each is confirmed.
HONEST_STEPS: dict[str, Forge] = {
    "momentum without decay": as_velocity(0.0),
    "momentum with coupled decay": as_velocity(1e-2),
    "coupled decay of a gradient that vanishes": both(vanishing_gradient, as_velocity(1e-2)),
    "a step with the rate 0": resting,
    "a rate too small for float32": barely_moving,
    "gradients clipped by value": steps_altered(r"step0\.moment1\.", clipped),
    "a schedule of a temperature": set_temperature,
    "a forward stage with a call of its own": observed_otherwise,
    "losses drawn at random in each stage": drawing_losses,
    "elements that rounding puts in another order": flipped_elements,
    "a head in half precision": half_inside,
    "models by assignment": lambda forgery: rewrite_source(forgery, model_by_assignment),
    "models in a source of a newer Python": read_by_newer_python,
    "a case of twinalign's own zoo": of_our_zoo,
    "a port's kernels": lambda forgery: tell(forgery, lambda m: m.update(kernels={"hardswish": {}}), side="paddle"),
}
