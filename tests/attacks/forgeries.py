"""Forgeries that one bundle can show, and those that it cannot: `python tests/attacks/forgeries.py --all [BUNDLE]`.

Without a bundle, `tests.cases.compact` is recorded first. Prints the verdict on each; fails if one is confirmed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.attacks.forged import (
    DTYPES,
    LEDGER,
    SIDES,
    STEMS,
    SUMMARY,
    Forge,
    as_json,
    change,
    describe,
    drawn,
    drop,
    in_float32_alone,
    made_up_repeat,
    member,
    noise,
    only_stage,
    random_port,
    rewrite_source,
    settle,
    tell,
    without_float64,
)
from tests.attacks.forged_numbers import FORGED_NUMBERS, everywhere
from tests.twinalign.bundle.forging import Forgery
from twinalign.bundle.verifying import verify_bundle
from twinalign.errors import InputError


def casts(forgery: Forgery) -> None:
    """The reference's float64 run is said to compute in float32."""
    name = member("forward", "ref", "float64", "json")
    forgery.edit(name, lambda metadata: metadata.update(casts_to_float32=3))


def random_numbers_with_casts(share: float) -> Forge:
    """The port's output is made up within what a made-up repeat allows."""

    def forge(forgery: Forgery) -> None:
        casts(forgery)
        made_up_repeat(forgery, share)
        honest = forgery.arrays(member("forward", "ref"))["output"]
        forgery.change_arrays(member("forward", "paddle"), lambda a: a.update(output=noise(honest, share, 5)))
        forgery.change_arrays(
            member("forward", "paddle", "float64"), lambda a: a.update(output=drawn(honest.astype("float64")))
        )

    return forge


def only_float64_is_random(forgery: Forgery) -> None:
    casts(forgery)
    made_up_repeat(forgery, 1e-6)
    name = member("forward", "paddle", "float64")
    forgery.change_arrays(name, lambda a: a.update(output=drawn(a["output"])))


def far_repeat_of(names: list[str] | None, sides: tuple[str, ...] = SIDES) -> Forge:
    """No float64, and a repeat 30 % off in some tensors, within which the port is made up."""

    def forge(forgery: Forgery) -> None:
        only_stage(forgery, "forward")
        without_float64(forgery, sides)
        made_up_repeat(forgery, 0.3, names)
        honest = forgery.arrays(member("forward", "ref"))["output"]
        forgery.change_arrays(member("forward", "paddle"), lambda a: a.update(output=noise(honest, 0.3, 5)))
        if "paddle" not in sides:
            made = forgery.arrays(member("forward", "paddle"))["output"].astype("float64")
            name = member("forward", "paddle", "float64")
            forgery.change_arrays(name, lambda a: a.update(output=noise(made, 1e-8)))

    return forge


def one_far_element(forgery: Forgery) -> None:
    """A repeat that is honest but for one element, beside which one of the port is wrong."""
    only_stage(forgery, "forward")
    without_float64(forgery, SIDES)
    made_up_repeat(forgery, 1e-7)
    forgery.change_arrays("result/repeat/forward_ref.npy", lambda a: a["output"].__setitem__((0, 0), 9.0))
    forgery.change_arrays(member("forward", "paddle"), lambda a: a["output"].__setitem__((3, 3), 5.0))


def float64_left_out(stage: str) -> Forge:
    """A stage without float64 whose loss ran in it a stage later."""

    def forge(forgery: Forgery) -> None:
        without_float64(forgery, SIDES, [stage])

    return forge


def far_repeats_of_loss(forgery: Forgery) -> None:
    """Loss values 20 % off, without float64, and repeats in the metadata that vary as much."""
    only_stage(forgery, "loss")
    in_float32_alone(forgery)
    forgery.edit(SUMMARY, lambda summary: summary.update(precision="both"))
    without_float64(forgery, SIDES, ["loss"])
    made_up_repeat(forgery, 0.2, stage="loss")
    value = float(forgery.arrays(member("loss", "ref"))["loss"])
    repeats = {"loss": [[value * f] for f in (0.8, 1.2, 0.9, 1.1)]}
    forgery.edit(member("loss", "ref", ending="json"), lambda m: m.update(repeats=repeats))
    forgery.change_arrays(member("loss", "paddle"), lambda a: a.update(loss=np.float32(value * 1.2)))


def far_repeats_with_float64(forgery: Forgery) -> None:
    """Repeats in the metadata that let a float32 loss be 20 % off, though the float64 runs are there."""
    value = float(forgery.arrays(member("loss", "ref"))["loss"])
    repeats = {"loss": [[value * f] for f in (0.8, 1.2, 0.9, 1.1)]}
    forgery.edit(member("loss", "ref", ending="json"), lambda m: m.update(repeats=repeats))
    forgery.change_arrays(member("loss", "paddle"), lambda a: a.update(loss=np.float32(value * 1.2)))


def small_numbers(forgery: Forgery) -> None:
    """Numbers below every absolute tolerance."""
    only_stage(forgery, "forward")
    in_float32_alone(forgery)
    change(forgery, lambda a, s, d: a.update(output=(drawn(a["output"], SIDES.index(s)) * 1e-6).astype("float32")))
    drop(forgery, "buffer", "forward")
    describe(forgery, train_mode=False)
    forgery.edit(SUMMARY, lambda summary: summary["not_checked"].append("training_mode"))


def reference_far_from_itself(forgery: Forgery) -> None:
    """The reference's float32 run is 30 % off its float64 run, and so may be the port's."""
    truth = forgery.arrays(member("forward", "ref", "float64"))["output"].astype("float32")
    for seed, side in enumerate(SIDES):
        forgery.change_arrays(member("forward", side), lambda a, s=seed: a.update(output=noise(truth, 0.3, s)))
    for side in SIDES:
        drop_buffers(forgery, side)


def drop_buffers(forgery: Forgery, side: str) -> None:
    for dtype in DTYPES:
        forgery.change_arrays(
            member("forward", side, dtype), lambda a: [a.pop(name) for name in [*a] if name.startswith("buffer.")]
        )


def accepting(text: str, in_source: str = "", name: str = "output", stage: str = "forward") -> Forge:
    """A convention that covers a made-up tensor, in the description and perhaps somewhere in the source."""

    def forge(forgery: Forgery) -> None:
        random_port(forgery, name, stage)
        describe(forgery, accept=["bn_running_var_biased", text])
        if in_source:
            rewrite_source(forgery, lambda source: source + f"\n\n{in_source}\n")

    return forge


def variance_times(factor: float) -> Forge:
    """What is accepted as the biased variance is another number."""

    def forge(forgery: Forgery) -> None:
        def alter(arrays: dict[str, np.ndarray], side: str, dtype: str) -> None:
            for name in [n for n in arrays if n.endswith("running_var") and side == "paddle"]:
                arrays[name] = (arrays[name] * factor).astype(dtype)

        change(forgery, alter)
        change(forgery, alter, "backward")

    return forge


def allowing(forgery: Forgery) -> None:
    describe(forgery, allowances=["paddle_hard_activation"])


def allowing_in_a_comment(forgery: Forgery) -> None:
    allowing(forgery)
    rewrite_source(forgery, lambda source: source + '\n# allowances = ("paddle_hard_activation",)\n')


def in_ledger(alter: Any) -> Forge:
    return lambda forgery: forgery.edit(LEDGER, alter)


def short_ledger(ledger: Any) -> None:
    """An entry less, and totals that fit."""
    entry = ledger["entries"].pop(0)
    ledger["totals"][entry["actions"][0]] -= 1


def entry_of(ledger: Any, source: str) -> Any:
    return next(entry for entry in ledger["entries"] if entry["source"] == [source])


def without_last_step(forgery: Forgery) -> None:
    drop(forgery, r"^step1\.")


def without_weight(forgery: Forgery) -> None:
    drop(forgery, r"5\.weight")


def without_samples(forgery: Forgery) -> None:
    """A sample of 3839 elements is said to be the whole tensor."""
    tell(forgery, lambda m: m.pop("sampled", None), ["backward"])
    drop(forgery, r"\(projections\)")


def other_steps(forgery: Forgery) -> None:
    tell(forgery, lambda m: m["inputs_sha256"].update({"2": "0" * 64}), ["backward"])


def no_inputs(side: str) -> Forge:
    """The hashes of the inputs are left out, on the side whose inputs were others or on both."""
    return lambda forgery: tell(forgery, lambda m: m.pop("inputs_sha256", None), ["forward"], side)


def eval_mode(forgery: Forgery) -> None:
    """Recorded in evaluation mode, and said to be in training mode."""
    drop(forgery, r"^buffer\.", "forward")

    def still(arrays: dict[str, np.ndarray], side: str, dtype: str) -> None:
        for name in [n for n in arrays if ".buffer." in n]:
            arrays[name] = arrays[name.replace("step1", "step0")].copy()

    change(forgery, still, "backward")


def eval_mode_claimed(forgery: Forgery) -> None:
    describe(forgery, train_mode=False)
    forgery.edit(SUMMARY, lambda summary: summary["not_checked"].append("training_mode"))


def more_norms(forgery: Forgery) -> None:
    """Fifty more batch norms on every page, of which the ledger knows nothing."""
    tell(forgery, lambda m: m["layer_classes"]["paddle.nn.layer.norm.BatchNorm1D"].update(count=9), STEMS, "paddle")


def without_norms(forgery: Forgery) -> None:
    """The port is a copy, and no page names a layer that would round it differently."""
    for side in SIDES:
        tell(
            forgery,
            lambda m: [m["layer_classes"].pop(name) for name in [*m["layer_classes"]] if "orm" in name],
            side=side,
        )
    for stage in ("forward", "loss", "backward"):
        for dtype in DTYPES:
            forgery.members[member(stage, "paddle", dtype)] = forgery.members[member(stage, "ref", dtype)]


def without_norms_anywhere(forgery: Forgery) -> None:
    """And the ledger does not name one either, so that only its shapes are left."""
    without_norms(forgery)

    def reword(ledger: Any) -> None:
        for entry in ledger["entries"]:
            entry["reason"] = "linear rule"

    forgery.edit(LEDGER, reword)


def cast_count_in_float32(forgery: Forgery) -> None:
    tell(forgery, lambda m: m.update(casts_to_float32=2) if m["dtype"] == "float32" else None, ["loss"])


def emptied(forgery: Forgery) -> None:
    """Every tensor of a stage is empty on both sides."""
    change(forgery, lambda a, s, d: a.update({name: array.ravel()[:0] for name, array in a.items()}), "loss")


def no_buffers_of_variance(forgery: Forgery) -> None:
    drop(forgery, "running_var", "forward")


def swapped_sides(forgery: Forgery) -> None:
    """Each side's arrays under the other's name."""
    for dtype in DTYPES:
        one, other = member("forward", "ref", dtype), member("forward", "paddle", dtype)
        forgery.members[one], forgery.members[other] = forgery.members[other], forgery.members[one]


def other_layers_in_one(forgery: Forgery) -> None:
    forgery.edit(member("loss", "paddle", ending="json"), lambda m: m["layer_classes"].popitem())


def gradient_of_nothing(forgery: Forgery) -> None:
    drop(forgery, r"gradient\.4\.weight")


def moments_of_one_step(forgery: Forgery) -> None:
    drop(forgery, r"step1\.moment2\.5\.bias")


def parameter_of_one_step(forgery: Forgery) -> None:
    drop(forgery, r"step0\.parameter\.0\.bias")


def trained_by_nobody(forgery: Forgery) -> None:
    """The source never mentions training mode."""
    rewrite_source(forgery, lambda source: source.replace("train_mode = True", "").replace("in training mode", ""))


# Name -> how it is forged. One bundle shows each of these.
FORGERIES: dict[str, Forge] = {
    "random numbers, claimed casts, a repeat 30 % off": random_numbers_with_casts(0.3),
    "random numbers, claimed casts, a repeat 1 % off": random_numbers_with_casts(0.01),
    "claimed casts, a near repeat, a random float64 run": only_float64_is_random,
    "no float64 on both sides, a repeat 30 % off": far_repeat_of(None),
    "no float64 on both sides, a repeat of one tensor 30 % off": far_repeat_of(["output"]),
    "no float64 of the reference, a repeat of one tensor 30 % off": far_repeat_of(["output"], ("ref",)),
    "a repeat with one far element": one_far_element,
    "the loss without float64 that the backward stage has": float64_left_out("loss"),
    "the outputs without float64 that the loss has": float64_left_out("forward"),
    "repeats of the loss 20 % off, no float64": far_repeats_of_loss,
    "repeats of the loss 20 % off beside float64": far_repeats_with_float64,
    "numbers below every tolerance": small_numbers,
    "a reference 30 % off its own float64 run": reference_far_from_itself,
    "rounding=* edited in": accepting("rounding=*"),
    "output=* edited in": accepting("output=*"),
    "output=* in a comment": accepting("output=*", '# accept = ("output=*",)'),
    "output=* in a text": accepting("output=*", 'NOTE = """accept = ("output=*",)"""'),
    "output=* in another list": accepting("output=*", 'SKIPPED = ["output=*"]'),
    "output=* in a message": accepting("output=*", 'def show():\n    print("accept", "output=*")'),
    "output=* in the source": accepting("output=*", 'Compact.accept = ("bn_running_var_biased", "output=*")'),
    "everything in the source": accepting("mine=*", 'Compact.accept = ("bn_running_var_biased", "mine=*")'),
    "a known convention for all": accepting(
        "bn_running_var_biased=*", 'Compact.accept = ("bn_running_var_biased", "bn_running_var_biased=*")'
    ),
    "a convention of gradients": accepting(
        "mine=*gradient*", 'Compact.accept = ("mine=*gradient*",)', "step1.gradient.0.weight", "backward"
    ),
    "a convention of a loss": accepting("mine=loss", 'Compact.accept = ("mine=loss",)', "loss", "loss"),
    "a variance that is three times as large": variance_times(3.0),
    "a variance that is a quarter as large": variance_times(0.25),
    "an allowance edited in": allowing,
    "an allowance in a comment": allowing_in_a_comment,
    "an empty ledger": in_ledger(lambda ledger: ledger.update(entries=[], totals={})),
    "a ledger that is a list": lambda forgery: forgery.members.update({LEDGER: as_json({"entries": 5})}),
    "a ledger of other totals": in_ledger(lambda ledger: ledger["totals"].update(copied=99)),
    "a ledger of another shape": in_ledger(lambda ledger: entry_of(ledger, "0.bias").update(source_shapes=[[41]])),
    "a ledger of another name": in_ledger(lambda ledger: entry_of(ledger, "0.bias").update(source=["9.bias"])),
    "a ledger of another layer": in_ledger(
        lambda ledger: entry_of(ledger, "0.bias").update(reason="Conv2d to Conv2D: copied")
    ),
    "the last step left out": without_last_step,
    "a weight left out": without_weight,
    "a gradient left out": gradient_of_nothing,
    "a moment of one step left out": moments_of_one_step,
    "a parameter of one step left out": parameter_of_one_step,
    "buffers left out of training": lambda forgery: drop(forgery, r"step\d\.buffer"),
    "variances left out": no_buffers_of_variance,
    "samples without projections": without_samples,
    "inputs of a step that was not run": other_steps,
    "no hash of the port's inputs": no_inputs("paddle"),
    "no hash of any inputs": no_inputs(""),
    "evaluation mode called training mode": eval_mode,
    "training mode called evaluation mode": eval_mode_claimed,
    "training mode that no source mentions": trained_by_nobody,
    "nothing was left unchecked": lambda forgery: forgery.edit(SUMMARY, lambda s: s.update(not_checked=[])),
    "more batch norms than the ledger knows": more_norms,
    "a copy in a model without norms": without_norms,
    "a copy in a model whose ledger names no layers": without_norms_anywhere,
    "other layers in one recording": other_layers_in_one,
    "casts counted in a float32 run": cast_count_in_float32,
    "a stage of empty tensors": emptied,
    "sides swapped": swapped_sides,
    **FORGED_NUMBERS,
}


def _drawn_outputs(forgery: Forgery) -> None:
    """Outputs of both sides that no model computed, made to differ as rounding does."""
    truth = drawn(forgery.arrays(member("forward", "ref", "float64"))["output"])

    def alter(arrays: dict[str, np.ndarray], side: str, dtype: str) -> None:
        unit = {"float32": 1e-7, "float64": 2e-16}[dtype]
        seed = SIDES.index(side) + 7 * len(dtype)
        arrays["output"] = (truth * (1 + unit * np.random.default_rng(seed).standard_normal(truth.shape))).astype(dtype)

    change(forgery, alter)


def _without_weight_anywhere(forgery: Forgery) -> None:
    without_weight(forgery)

    def forget(ledger: Any) -> None:
        ledger["entries"].remove(entry := entry_of(ledger, "5.weight"))
        ledger["totals"][entry["actions"][0]] -= 1

    forgery.edit(LEDGER, forget)


def _mostly_nan(array: np.ndarray) -> np.ndarray:
    return np.where(np.arange(array.size).reshape(array.shape) < array.size - 9, np.nan, array)


# What no single bundle can show, and `--replay` does; listed in docs/how-to/submit-for-review.md.
UNSEEN: dict[str, Forge] = {
    "outputs of no model, with noise of the right size": _drawn_outputs,
    "a tensor left out of everything": _without_weight_anywhere,
    "an output left out of every recording": lambda forgery: drop(forgery, "mean", "loss"),
    "one quantity of the optimizer left out of every step": lambda forgery: drop(forgery, r"\.moment2\."),
    "an output of which every recording says that it is not a number": everywhere("forward", "^output", _mostly_nan),
    "other weights": lambda forgery: tell(forgery, lambda m: m.update(weights_sha256="5" * 64)),
}


def forged(bundle: Path, forge: Forge, folder: Path) -> Path:
    """The forged bundle, whose claims fit whatever is in it."""
    forgery = Forgery(bundle)
    forge(forgery)
    settle(forgery)
    forgery.claim_what_is(folder / "claim.zip")
    return forgery.write(folder / "forged.zip")


def verdict_on(bundle: Path, forge: Forge, folder: Path) -> tuple[str, int, str]:
    """Verdict, exit code and the first objection to a forgery; `refused` where it is no bundle at all."""
    try:
        result = verify_bundle(forged(bundle, forge, folder))
    except InputError as error:
        return "refused", 2, str(error)
    objections = [*map(str, result.mismatches), *map(str, result.signs)]
    return result.verdict, int(result.exit_code), objections[0] if objections else ""


def record(folder: Path) -> Path:
    """A bundle of `tests.cases.compact`, recorded here."""
    import twinalign

    twinalign.run("tests.cases.compact:Compact", out=folder / "run", locate=False)
    twinalign.pack(folder / "run", folder / "bundle.zip", partial=True)
    return folder / "bundle.zip"


def main(arguments: list[str]) -> int:
    """Forge everything, print what `verify` makes of it, and return the number of forgeries that it confirms."""
    confirmed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        named = [Path(argument) for argument in arguments if not argument.startswith("-")]
        bundle = named[0] if named else record(folder)
        for title, table in (("one bundle shows", FORGERIES), ("only --replay shows", UNSEEN)):
            print(f"{title} ({len(table)}):")
            for what, forge in table.items():
                verdict, code, objection = verdict_on(bundle, forge, folder)
                print(f"  {what}: {verdict} ({code}) {objection[:170]}")
                confirmed += verdict == "confirmed" and table is FORGERIES
    print(f"confirmed, though one bundle shows it: {confirmed}")
    return confirmed


if __name__ == "__main__":
    sys.exit(min(1, main(sys.argv[1:])))
