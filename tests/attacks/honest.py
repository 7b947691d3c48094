"""Honest bundles that look odd: `python tests/attacks/honest.py --all [BUNDLE]`. None of them is refused or suspect."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.attacks.forged import (
    CASE,
    DTYPES,
    LEDGER,
    MANIFEST,
    SIDES,
    SUMMARY,
    Forge,
    change,
    describe,
    drop,
    in_float32_alone,
    made_up_repeat,
    member,
    only_stage,
    rewrite_source,
    tell,
    without_float64,
)
from tests.attacks.forgeries import casts, record, verdict_on
from tests.attacks.honest_steps import HONEST_STEPS
from tests.twinalign.bundle.forging import Forgery

RNG = np.random.default_rng(3)
TRUTH = RNG.standard_normal((16, 24))


def rounded(truth: np.ndarray, side: str, dtype: str, times: float = 1.0) -> np.ndarray:
    """What a side computes in a precision: the truth with roundings of its own."""
    unit = {"float32": 2.0**-24, "float64": 2.0**-53}[dtype] * times
    own = np.random.default_rng([SIDES.index(side), DTYPES.index(dtype)]).standard_normal(truth.shape)
    with np.errstate(all="ignore"):
        kind = {"float32": "complex64", "float64": "complex128"}[dtype] if truth.dtype.kind == "c" else dtype
        return (truth * (1 + 2 * unit * own)).astype(kind)


def computed(name: str, truth: np.ndarray, stage: str = "forward", times: float = 1.0) -> Forge:
    """One more tensor, which both sides compute as they do."""
    return lambda f: change(f, lambda a, s, d: a.update({name: rounded(truth, s, d, times)}), stage)


def equal(name: str, value: np.ndarray) -> Forge:
    """One more tensor, which is the same everywhere."""
    return lambda forgery: change(forgery, lambda a, s, d: a.update({name: value}))


def both(*steps: Forge) -> Forge:
    def forge(forgery: Forgery) -> None:
        for step in steps:
            step(forgery)

    return forge


def with_holes(value: float) -> np.ndarray:
    truth = TRUTH.copy()
    truth[:, 3] = value
    return truth


def no_float64(sides: tuple[str, ...]) -> Forge:
    def forge(forgery: Forgery) -> None:
        only_stage(forgery, "forward")
        without_float64(forgery, sides)
        made_up_repeat(forgery, 3e-7)

    return forge


def float64_in_float32(forgery: Forgery) -> None:
    """The model computes in float32 on the way, in its float64 runs too."""
    casts(forgery)
    made_up_repeat(forgery, 1e-6)
    for side in SIDES:
        low = forgery.arrays(member("forward", side))["output"]
        value = rounded(low.astype("float64"), side, "float32").astype("float64") * (1 + 1e-12)
        forgery.change_arrays(member("forward", side, "float64"), lambda a, v=value: a.update(output=v))


def accepting(assignment: str, text: str, truth: Callable[[np.ndarray], np.ndarray]) -> Forge:
    """A convention that the source names, under which the port's output is another."""

    def forge(forgery: Forgery) -> None:
        def alter(arrays: dict[str, np.ndarray], side: str, dtype: str) -> None:
            arrays["pooled"] = truth(rounded(TRUTH, side, dtype)) if side == "paddle" else rounded(TRUTH, side, dtype)

        change(forgery, alter)
        describe(forgery, accept=["bn_running_var_biased", text])
        rewrite_source(forgery, lambda source: f"{source}\n\n{assignment}\n")

    return forge


def in_evaluation_mode(forgery: Forgery) -> None:
    only_stage(forgery, "forward", "loss")
    drop(forgery, "buffer", "forward")
    describe(forgery, train_mode=False)
    forgery.edit(SUMMARY, lambda summary: summary["not_checked"].append("training_mode"))


def with_frozen_norms(forgery: Forgery) -> None:
    only_stage(forgery, "forward", "loss")
    drop(forgery, "buffer", "forward")
    rewrite_source(forgery, lambda source: source + "\n\ndef freeze(norm):\n    return norm.eval()\n")


def drawing_at_random(forgery: Forgery) -> None:
    """Dropout: each framework draws for itself."""
    only_stage(forgery, "forward")

    def alter(arrays: dict[str, np.ndarray], side: str, dtype: str) -> None:
        kept = np.random.default_rng(SIDES.index(side)).random(TRUTH.shape) < 0.9
        arrays["dropped"] = rounded(TRUTH * kept, side, dtype)

    change(forgery, alter)
    tell(forgery, lambda m: m.update(draws=True), ["forward"])
    tell(forgery, lambda m: m.update(changed_by_draws={"dropped": 0.4}), ["forward"], "ref")


def forward_in_float32(forgery: Forgery) -> None:
    only_stage(forgery, "forward")
    in_float32_alone(forgery)


def cancelling_loss(forgery: Forgery) -> None:
    """A loss of a millionth, added up from numbers of size one."""
    tiny = {"ref": 1.0e-6, "paddle": 1.1e-6}

    def alter(arrays: dict[str, np.ndarray], side: str, dtype: str) -> None:
        arrays["rest"] = np.asarray(tiny[side] if dtype == "float32" else 1.02e-6 * (1 + 1e-12), dtype)

    change(forgery, alter, "loss")
    repeats = {"rest": [[9.0e-7], [1.05e-6], [1.2e-6], [1.0e-6]]}
    name = member("loss", "ref", ending="json")
    forgery.edit(name, lambda m: m.setdefault("repeats", {}).update(repeats))


def frozen_layer(forgery: Forgery) -> None:
    """A layer whose weights are given no gradient, and of which the optimizer knows nothing."""
    drop(forgery, r"(gradient|moment\d)\.0\.")


def no_momentum(forgery: Forgery) -> None:
    """An optimizer without a state."""
    drop(forgery, r"moment\d")


def tied_weights(forgery: Forgery) -> None:
    """A second name of a weight, which is recorded under the first."""

    def tie(ledger: Any) -> None:
        ledger["entries"].append({**ledger["entries"][0], "source": ["second.weight"], "actions": ["tied"]})
        ledger["totals"]["tied"] = 1

    forgery.edit(LEDGER, tie)


def unread_source(content: bytes) -> Forge:
    """A file that this Python cannot parse."""

    def forge(forgery: Forgery) -> None:
        import hashlib

        digest = hashlib.sha256(content).hexdigest()
        forgery.members["source/newer.py"] = content
        forgery.edit(MANIFEST, lambda m: m["source"].update({"source/newer.py": "/home/me/newer.py"}))
        tell(forgery, lambda m: m["code_sha256"].update({"/home/me/newer.py": digest}))

    return forge


def signed_zeros(forgery: Forgery) -> None:
    """What is cut off at zero is -0.0 in one framework and 0.0 in the other."""
    zero = {"ref": 0.0, "paddle": -0.0}
    change(forgery, lambda a, s, d: a.update(cut=np.where(TRUTH > 0, rounded(TRUTH, s, d), zero[s]).astype(d)))


def many_outputs(forgery: Forgery) -> None:
    """As many tensors as a detector returns."""
    change(forgery, lambda a, s, d: a.update({f"boxes.{n}": rounded(TRUTH[:, : n % 5 + 1], s, d) for n in range(300)}))


def on_other_machines(forgery: Forgery) -> None:
    """Each side was recorded on a machine of its own, with another Python."""
    own = {"platform": "macOS-15.1-arm64-arm-64bit", "python": "3.12.4", "processors": 12}

    def tell_own(metadata: Any) -> None:
        metadata["environment"].update(own)
        metadata["identity"]["interpreter"]["python"] = own["python"]

    tell(forgery, tell_own, side="paddle")
    forgery.edit(SUMMARY, lambda summary: summary["environment"]["paddle"].update(own))
    forgery.edit(CASE, lambda case: case["identity"]["paddle"]["interpreter"].update(python=own["python"]))


def double(array: np.ndarray) -> np.ndarray:
    return array * array.dtype.type(2)


# Name -> how it comes about. Each is confirmed.
HONEST: dict[str, Forge] = {
    "nothing odd": lambda forgery: None,
    "outputs of zeros": equal("zeros", np.zeros((4, 5), "float32")),
    "an empty output": equal("empty", np.zeros((0, 5), "float32")),
    "an empty state": no_momentum,
    "integers": equal("best", np.arange(12)),
    "truth values": equal("positive", np.arange(12) % 3 == 0),
    "complex outputs": computed("spectrum", TRUTH + 1j * TRUTH.T.reshape(TRUTH.shape)),
    "a complex number": computed("phase", np.asarray(0.3 + 0.4j)),
    "elements that are not numbers": computed("masked", with_holes(np.nan)),
    "infinities": computed("masked", with_holes(-np.inf)),
    "huge numbers": computed("huge", TRUTH * 1e30),
    "tiny numbers": computed("tiny", TRUTH * 1e-30),
    "numbers below the least normal one": equal("subnormal", np.full(9, 1e-42, "float32")),
    "half precision": equal("half", TRUTH.astype("float16")),
    "bytes": equal("mask", np.arange(256, dtype="uint8")),
    "an integer": equal("count", np.asarray(3)),
    "zeros of either sign": signed_zeros,
    "a tensor of many axes": computed("nested", TRUTH.reshape(2, 1, 4, 1, 2, 6, 1, 4)),
    "one number far from the others": computed("outlier", np.where(np.arange(24) == 5, TRUTH * 1e12, TRUTH)),
    "numbers around a large one": computed("shifted", TRUTH + 1e4),
    "columns before rows": computed("columns", np.asfortranarray(TRUTH)),
    "one output under two names": both(computed("logits", TRUTH), computed("scores", TRUTH)),
    "names in other scripts": computed("输出['ключ'][0] – μ/σ", TRUTH),
    "many outputs": many_outputs,
    "sides on machines of their own": on_other_machines,
    "no float64 of the reference": no_float64(("ref",)),
    "no float64 of the port": lambda forgery: (only_stage(forgery, "forward"), without_float64(forgery, ["paddle"])),
    "no float64 at all": no_float64(SIDES),
    "float32 alone": forward_in_float32,
    "tiny numbers in float32 alone": both(computed("tiny", TRUTH * 1e-12), forward_in_float32),
    "casts to float32 inside": float64_in_float32,
    "casts that change nothing": lambda forgery: (casts(forgery), made_up_repeat(forgery, 1e-7)),
    "a convention in a tuple": accepting('Compact.accept = ("twice=pooled",)', "twice=pooled", double),
    "a convention in a list with a type": accepting('accept: list = ["twice=pooled"]', "twice=pooled", double),
    "a convention through a name": accepting('OWN = "twice=pooled"\nCompact.accept = [OWN]', "twice=pooled", double),
    "a convention in an f-string": accepting(
        'Compact.accept = [f"twice={part}" for part in ("pooled",)]', "twice=pooled", double
    ),
    "a convention from a function": accepting(
        'def accept():\n    return ["flipped=pooled"]', "flipped=pooled", lambda array: array[::-1]
    ),
    "evaluation mode": in_evaluation_mode,
    "norms frozen in training": with_frozen_norms,
    "only forward": lambda forgery: only_stage(forgery, "forward"),
    "only the loss": lambda forgery: only_stage(forgery, "loss"),
    "only backward": lambda forgery: only_stage(forgery, "backward"),
    "a loss that cancels": cancelling_loss,
    "a frozen layer": frozen_layer,
    "tied weights": tied_weights,
    "another version": lambda forgery: forgery.edit(MANIFEST, lambda m: m.update(twinalign="0.0.9")),
    "a source with the line ends of Windows": lambda forgery: rewrite_source(
        forgery, lambda source: source.replace("\n", "\r\n")
    ),
    "a source with a byte order mark": lambda forgery: rewrite_source(forgery, lambda source: f"\ufeff{source}"),
    "a source of a newer Python": unread_source(b"type A[T = int] = list[T]\nlambda: (yield) = 3\n"),
    "a source that is not UTF-8": unread_source(b"accept = '\xff\xfe'\n"),
    "a source of one long expression": unread_source(b"accept = " + b"(" * 5000 + b")" * 5000 + b"\n"),
    **HONEST_STEPS,
}
INCONCLUSIVE: dict[str, Forge] = {
    "numbers drawn at random": drawing_at_random,
    "nothing but what is not a number": equal("undefined", np.full((3, 4), np.nan, "float32")),
}


def main(arguments: list[str]) -> int:
    """Make every bundle, print what `verify` says, and return how many it does not take as they are."""
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        named = [Path(argument) for argument in arguments if not argument.startswith("-")]
        bundle = named[0] if named else record(Path(name))
        for expected, table in (("confirmed", HONEST), ("inconclusive", INCONCLUSIVE)):
            for what, forge in table.items():
                verdict, code, objection = verdict_on(bundle, forge, Path(name))
                wrong += verdict != expected
                print(f"  {what}: {verdict} ({code}) {objection[:200]}")
    print(f"honest bundles that are not taken: {wrong}")
    return wrong


if __name__ == "__main__":
    sys.exit(min(1, main(sys.argv[1:])))
