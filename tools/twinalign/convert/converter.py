"""Convert one checkpoint file into another: what `twinalign convert` does."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.backends import FRAMEWORK_OF_SIDE
from twinalign.convert import conversion, explicit, export, inputs, layout, storage
from twinalign.convert.align import Alignment, align
from twinalign.convert.checkpoint import Checkpoint, read_checkpoint
from twinalign.convert.counterpart import counterpart, renamed_layout
from twinalign.convert.layout import StateEntry
from twinalign.convert.ledger import Ledger, LedgerEntry
from twinalign.convert.names import Renaming, fits_any
from twinalign.convert.options import Options, Report
from twinalign.convert.output import Output
from twinalign.convert.plan import OTHER, Plan, Side, make_plan, read_side
from twinalign.convert.process import ModelProcess
from twinalign.convert.trial import Trial
from twinalign.convert.units import units_of
from twinalign.convert.verification import verify
from twinalign.convert.worker import load_rules
from twinalign.errors import InputError

SIDE_OF = {framework: side for side, framework in FRAMEWORK_OF_SIDE.items()}
SUFFIX_FRAMEWORKS = {
    ".pth": "torch",
    ".pt": "torch",
    ".tar": "torch",
    ".bin": "torch",
    ".pdparams": "paddle",
    ".npz": "paddle",
}
"""Suffix of a target → the framework that reads it; what a `.safetensors` is for, `--to` or the source says."""


def convert_checkpoint(source: Path, target: Path, options: Options) -> Report:
    """Convert `source` into `target`.

    Raises InputError for what the user can mend, DivergedError where `--verify` or a trial shows that the two models
    compute different things; nothing is written then.
    """
    if target.suffix not in (*SUFFIX_FRAMEWORKS, ".safetensors"):
        raise InputError(
            f"{target}: its name says no format that is written; let it end in .pdparams, .npz, .pth, .pt, .pth.tar, "
            ".bin or .safetensors"
        )
    load_rules(options.rules)
    inputs.parse_inputs(options.inputs)
    checkpoint = read_checkpoint(source, options.entry)
    if target.exists() and target.samefile(source):
        raise InputError(f"{target}: source and target are the same file")
    if not target.parent.is_dir():
        raise InputError(f"{target.parent}: no such folder; make it first")
    own = checkpoint.framework
    if options.export and own is not None and own in (SUFFIX_FRAMEWORKS.get(target.suffix), options.direction):
        return export.export_within(checkpoint, target, own, options)
    with _processes(options) as processes:
        layouts = {FRAMEWORK_OF_SIDE[side]: _layout(process) for side, process in processes.items()}
        given = _source_framework(checkpoint, target, options, layouts)
        if options.prefix and given == "torch":
            raise InputError(
                f"--prefix {options.prefix}: it is for torch targets, and {target} is paddle's; leave it out"
            )
        _complete(layouts, checkpoint, given, options)
        layouts[given], extra = conversion.check_keys(
            checkpoint.weights,
            layouts[given],
            SIDE_OF[given],
            path=str(source),
            allow_missing=options.allow_missing,
            allow_unexpected=options.allow_unexpected,
        )
        layouts[given] = _with_dtypes(layouts[given], checkpoint)
        planning = _Planning(given, layouts, options)
        plan = planning.plan(processes)
        _check_answers(plan, options)
        facts = _facts(source, target, given, checkpoint)
        if plan.unproven and len(processes) == 1:
            raise InputError(_matrices(plan))
        if options.verify or ((plan.unproven or plan.assumed) and len(processes) == 2):
            plan, facts["verified"] = verify(
                processes, *planning.sides, plan, checkpoint.weights, options.inputs, planning.settings
            )
    ledger = Ledger(plan.entries, facts)
    ledger.entries += [
        LedgerEntry((key,), None, ("dropped",), f"a {kind}, no array") for key, kind in checkpoint.dropped.items()
    ]
    ledger.entries += [
        LedgerEntry((key,), None, ("dropped",), "allowed by name; the model does not know it") for key in extra
    ]
    output = Output(checkpoint, given, plan, layouts, options, ledger)
    return Report(ledger, output.write(target))


def convert_between(
    arrays: Mapping[str, np.ndarray], layouts: Mapping[str, Sequence[Mapping[str, Any]]], options: Options
) -> conversion.Conversion:
    """Convert the reference's state for its port, two models that are at hand.

    Where names differ and no rules are given, both models are run to find out which layer is which.

    Args:
        arrays: key -> array, exactly the keys of the reference.
        layouts: framework -> what `describe_state` says of its model.
        options: factories, interpreters, rules and inputs.

    Raises:
        InputError: keys without a partner, or an assignment that cannot be proven.
        DivergedError: a trial shows that the two models compute different things.
    """
    known = {framework: [StateEntry.of(entry) for entry in entries] for framework, entries in layouts.items()}
    planning = _Planning("torch", known, options)
    try:
        plan = planning.plan({})
    except InputError:
        if options.rename:
            raise
        with _processes(options) as processes:
            for process in processes.values():
                process.result()
            plan = planning.plan(processes)
    made = dict(conversion.execute(plan, arrays))
    return conversion.Conversion(made, Ledger(plan.entries), plan.unproven, plan.moves)


def _check_answers(plan: Plan, options: Options) -> None:
    """Raise InputError for answers that nothing asked for: they are mistyped, or would be ignored."""
    for option, patterns, other in (
        ("--keep", options.keep, options.transpose),
        ("--transpose", options.transpose, ()),
    ):
        for pattern in patterns:
            fitting = [key for key in plan.answered if fits_any(key, [pattern])]
            if not fitting:
                raise InputError(
                    f"{option} {pattern}: no matrix of the target that either framework may keep transposed fits this "
                    "pattern; leave it out, or mend it (the layouts of the frameworks' own layers are known)"
                )
            twice = [key for key in fitting if fits_any(key, other)]
            if twice:
                raise InputError(f"{twice[0]!r} fits --keep {pattern} and a --transpose pattern; leave one of them out")


def _matrices(plan: Plan) -> str:
    shapes = {move.target.key: move.target.shape for move in plan.moves}
    shown = ", ".join(f"{key} {list(shapes[key])}" for key in plan.unproven[:12])
    return (
        f"matrices of the model's own, which either framework may keep transposed: {shown}. Answer with --keep PATTERN "
        "or --transpose PATTERN, or give both models, which settles it by running them"
    )


def _layout(process: ModelProcess) -> list[StateEntry]:
    return [StateEntry.of(entry) for entry in process.result()["layout"]]


@contextlib.contextmanager
def _processes(options: Options) -> Iterator[dict[str, ModelProcess]]:
    """One process for each model that is given, both asked for their layouts at once."""
    with contextlib.ExitStack() as stack:
        processes = {}
        for side, factory in options.factories.items():
            process = stack.enter_context(ModelProcess(side, factory, options.pythons.get(side), options.rules))
            process.send("describe")
            processes[side] = process
        yield processes


def _source_framework(
    checkpoint: Checkpoint, target: Path, options: Options, layouts: Mapping[str, Sequence[StateEntry]]
) -> str:
    """The framework that the source is of: by its content, by the direction asked, by the target, by its keys."""
    found = {OTHER[options.direction]} if options.direction else set()
    if checkpoint.framework is not None:
        found.add(checkpoint.framework)
    if len(found) == 2:
        raise InputError(
            f"{checkpoint.path}: it is a {checkpoint.framework} file, which --to {options.direction} need not convert"
        )
    aimed = SUFFIX_FRAMEWORKS.get(target.suffix)
    if not found and aimed is not None:
        found = {OTHER[aimed]}
    if not found:
        fitting = [
            name
            for name, layout in layouts.items()
            if {e.key for e in layout if e.persistent} == set(checkpoint.weights)
        ]
        found = set(fitting) if len(fitting) == 1 else set()
    if not found:
        raise InputError(
            f"{checkpoint.path}: neither it nor the target's name tells the direction; say --to paddle or --to torch"
        )
    framework = found.pop()
    if aimed == framework:
        raise InputError(
            f"{target}: {checkpoint.path} is a {framework} checkpoint already, and {target.suffix} is {framework}'s "
            f"too; name a {OTHER[framework]} file"
        )
    return framework


def _complete(layouts: dict[str, list[StateEntry]], checkpoint: Checkpoint, given: str, options: Options) -> None:
    """Fill in the layouts that no model gave: the source's from its keys, the target's from the source's layers."""
    if options.layers and layouts:
        raise InputError("--layer says what layers are where no model does; with --ref or --paddle it has no use")
    if not layouts:
        layouts[given] = explicit.explicit_layout(given, checkpoint.weights, options.layers, str(checkpoint.path))
    for framework in ("torch", "paddle"):
        if framework not in layouts:
            known = layouts[OTHER[framework]]
            renaming = Renaming(options.rename)
            layers = layout.group_layers(known, functools.partial(storage.absorbs, OTHER[framework]))
            layouts[framework] = renamed_layout(counterpart(OTHER[framework], layers), renaming, framework)


class _Planning:
    """Finds the plan: by names and rules, and where names do not fit, by aligning the two models."""

    def __init__(self, given: str, layouts: Mapping[str, list[StateEntry]], options: Options) -> None:
        self.given, self.layouts, self.options = given, layouts, options
        self.settings: dict[str, Any] = {
            "cast": options.cast,
            "allow_missing": options.allow_missing,
            "allow_unexpected": options.allow_unexpected,
            "transpose": {
                **{e.key: False for e in layouts[OTHER[given]] if fits_any(e.key, options.keep)},
                **{e.key: True for e in layouts[OTHER[given]] if fits_any(e.key, options.transpose)},
            },
        }

    def _sides(self, alignment: Alignment | None) -> tuple[Side, Side]:
        renaming = Renaming({**self.options.rename, **(alignment.keys if alignment else {})})
        paths = alignment.paths if alignment else {}
        sides = [read_side(f, self.layouts[f], renaming, paths) for f in (self.given, OTHER[self.given])]
        # Before anything else: a mistyped rule is why names do not fit.
        conversion.check_renaming(renaming)
        return sides[0], sides[1]

    def plan(self, processes: Mapping[str, ModelProcess]) -> Plan:
        """The plan; raises InputError where none is found."""
        self.sides = self._sides(None)
        by = "rename" if self.options.rename else "name"
        try:
            return make_plan(*self.sides, matched_by=by, **self.settings)
        except InputError:
            # Rules that were given are meant to be enough; names that fit by half are not aligned behind their back.
            if self.options.rename or len(self.layouts) < 2 or set(processes) != {"ref", "paddle"}:
                raise
        reference, paddle = self.sides if self.given == "torch" else self.sides[::-1]
        units = units_of("torch", reference.layers)

        def trial() -> Trial:
            return Trial(processes["ref"], processes["paddle"], inputs.guess_inputs(units, self.options.inputs))

        allowed = (*self.options.allow_missing, *self.options.allow_unexpected)
        alignment = align(reference, paddle, trial, allowed, self.options.remedy)
        self.sides = self._sides(alignment)
        return make_plan(*self.sides, matched_by=alignment.matched_by, **self.settings)


def _with_dtypes(layout: Sequence[StateEntry], checkpoint: Checkpoint) -> list[StateEntry]:
    """The layout with the dtypes that the file has; a model says only what it is built with."""
    weights = checkpoint.weights
    return [
        dataclasses.replace(entry, dtype=weights[entry.key].dtype.name) if entry.key in weights else entry
        for entry in layout
    ]


def _facts(source: Path, target: Path, given: str, checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "source": {
            "file": str(source),
            "framework": given,
            "format": checkpoint.format,
            "entry": checkpoint.entry,
            "prefix": checkpoint.prefix,
        },
        "target": {"file": str(target), "framework": OTHER[given]},
    }
