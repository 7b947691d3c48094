"""Convert one checkpoint file into another: the work of `twinalign convert`."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.backends import state_layout as layout
from twinalign.backends.state_layout import StateEntry
from twinalign.conversion import convert_arrays, export, layout_from_keys, storage, trial_inputs
from twinalign.conversion.checkpoint import Checkpoint, read_checkpoint
from twinalign.conversion.converted_checkpoint import Output
from twinalign.conversion.layers_to_match import matchables_of
from twinalign.conversion.layout_of_counterpart import counterpart, renamed_layout
from twinalign.conversion.ledger import Ledger, LedgerEntry
from twinalign.conversion.match_layers import Matching, match_layers, unmatched_facts
from twinalign.conversion.model_factory import load_rules
from twinalign.conversion.options import ConversionResult, Options
from twinalign.conversion.plan import OTHER, Plan, make_plan
from twinalign.conversion.remote_model import BothModels, RemoteModel, started_models
from twinalign.conversion.rename_rules import Renaming, fits_any
from twinalign.conversion.side_layout import Side, read_side
from twinalign.conversion.unmatched import ListedError, UnmatchedError
from twinalign.conversion.verification import verify
from twinalign.errors import InputError
from twinalign.sides import FRAMEWORK_OF_SIDE

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


def convert_checkpoint(source: Path, target: Path, options: Options) -> ConversionResult:
    """Convert `source` into `target`.

    Raises InputError for anything the user can fix, and DivergedError if `--verify` or a trial shows that the two
    models compute different things; then nothing is written.
    """
    if target.suffix not in (*SUFFIX_FRAMEWORKS, ".safetensors"):
        raise InputError(
            f"{target}: its suffix is not a format that can be written; use .pdparams, .npz, .pth, .pt, .pth.tar, "
            ".bin or .safetensors"
        )
    load_rules(options.rules)
    trial_inputs.parse_inputs(options.inputs)
    checkpoint = read_checkpoint(source, options.entry)
    if target.exists() and target.samefile(source):
        raise InputError(f"{target}: source and target are the same file")
    if not target.parent.is_dir():
        raise InputError(f"{target.parent}: there is no such folder; create it first")
    own = checkpoint.framework
    if options.export and own is not None and own in (SUFFIX_FRAMEWORKS.get(target.suffix), options.direction):
        return export.export_within(checkpoint, target, own, options)
    with started_models(options) as models, _listing(target.with_suffix(".unmatched.txt")):
        layouts = {FRAMEWORK_OF_SIDE[side]: [*map(StateEntry.of, model.layout())] for side, model in models.items()}
        given = _source_framework(checkpoint, target, options, layouts)
        if options.prefix and given == "torch":
            raise InputError(
                f"--prefix {options.prefix}: it only applies to torch targets, and {target} is paddle's; leave it out"
            )
        _complete(layouts, checkpoint, given, options)
        layouts[given], extra = convert_arrays.check_keys(
            checkpoint.weights,
            layouts[given],
            SIDE_OF[given],
            path=str(source),
            allow_missing=options.allow_missing,
            allow_unexpected=options.allow_unexpected,
        )
        layouts[given] = _with_dtypes(layouts[given], checkpoint)
        versions = models["ref"].versions if "ref" in models else {}
        planning = _Planning(given, layouts, options)
        plan = planning.plan(models)
        _check_answers(plan, options)
        facts = _facts(source, target, given, checkpoint)
        if plan.unproven and len(models) == 1:
            raise InputError(_matrices(plan))
        if options.verify or ((plan.unproven or plan.assumed) and len(models) == 2):
            plan, facts["verified"] = verify(
                models, *planning.sides, plan, checkpoint.weights, options.inputs, planning.settings
            )
    ledger = Ledger(plan.entries, facts)
    ledger.entries += [
        LedgerEntry((key,), None, ("dropped",), f"a {kind}, no array") for key, kind in checkpoint.dropped.items()
    ]
    ledger.entries += [
        LedgerEntry((key,), None, ("dropped",), "allowed by name; the model does not have it") for key in extra
    ]
    output = Output(checkpoint, given, plan, layouts, options, ledger, versions)
    return ConversionResult(ledger, output.write(target))


@contextlib.contextmanager
def _listing(path: Path) -> Iterator[None]:
    """Write the keys of an error that has more than its message names into this file."""
    try:
        yield
    except ListedError as error:
        raise error.listed_in(path) from None


def convert_between(
    arrays: Mapping[str, np.ndarray],
    layouts: Mapping[str, Sequence[Mapping[str, Any]]],
    options: Options,
    models: Callable[[], contextlib.AbstractContextManager[Mapping[str, RemoteModel]]],
) -> convert_arrays.Conversion:
    """Convert the reference's state for its port, given both models.

    If names differ, both models, which `models` opens, are run to find which layer corresponds to which. What is not
    proven is matched by name and position; what has no partner is left out, and the ledger says so. `arrays` are
    exactly the reference's, by key; `layouts` is what `describe_state` says, by framework.

    Raises:
        InputError: a rename rule that fits nothing, or models that have nothing in common.
    """
    known = {framework: [StateEntry.of(entry) for entry in entries] for framework, entries in layouts.items()}
    planning = _Planning("torch", known, options, partial=True)
    try:
        plan = planning.by_name()
    except UnmatchedError:
        with models() as asked:
            plan = planning.by_matching(asked)
    made = dict(convert_arrays.execute(plan, arrays))
    shapes = tuple({entry.key: entry.shape for entry in known[framework]} for framework in FRAMEWORK_OF_SIDE.values())
    facts = unmatched_facts(plan.unmatched, planning.matching, (shapes[0], shapes[1]))
    ledger = Ledger(plan.entries, {"unmatched": facts} if facts else {})
    return convert_arrays.Conversion(made, ledger, plan.unproven, plan.moves, plan.alone)


def _check_answers(plan: Plan, options: Options) -> None:
    """Raise InputError for a --keep or --transpose that matches no open question: mistyped, or without effect."""
    for option, patterns, other in (
        ("--keep", options.keep, options.transpose),
        ("--transpose", options.transpose, ()),
    ):
        for pattern in patterns:
            fitting = [key for key in plan.answered if fits_any(key, [pattern])]
            if not fitting:
                raise InputError(
                    f"{option} {pattern}: this matches no matrix of the target whose layout is unknown (the layouts of "
                    "the frameworks' own layers are known); leave it out, or correct it"
                )
            twice = [key for key in fitting if fits_any(key, other)]
            if twice:
                raise InputError(f"{twice[0]!r} fits --keep {pattern} and a --transpose pattern; leave one of them out")


def _matrices(plan: Plan) -> str:
    shapes = {move.target.key: move.target.shape for move in plan.moves}
    shown = ", ".join(f"{key} {list(shapes[key])}" for key in plan.unproven[:12])
    return (
        f"these matrices of the model's own may be stored transposed in either framework: {shown}. Answer with "
        "--keep PATTERN or --transpose PATTERN, or give both models, so that running them decides"
    )


def _source_framework(
    checkpoint: Checkpoint, target: Path, options: Options, layouts: Mapping[str, Sequence[StateEntry]]
) -> str:
    """Find the source's framework from its content, the given direction, the target's suffix, or its keys."""
    found = {OTHER[options.direction]} if options.direction else set()
    if checkpoint.framework is not None:
        found.add(checkpoint.framework)
    if len(found) == 2:
        raise InputError(
            f"{checkpoint.path}: it is a {checkpoint.framework} file already; leave out --to {options.direction}"
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
            f"{checkpoint.path}: neither it nor the target's name shows the direction; give --to paddle or --to torch"
        )
    framework = found.pop()
    if aimed == framework:
        raise InputError(
            f"{target}: {checkpoint.path} is a {framework} checkpoint already, and {target.suffix} is {framework}'s "
            f"too; name a {OTHER[framework]} file"
        )
    return framework


def _complete(layouts: dict[str, list[StateEntry]], checkpoint: Checkpoint, given: str, options: Options) -> None:
    """Derive missing layouts: the source's from its keys, the target's from the source's layers."""
    if options.layers and layouts:
        raise InputError("--layer is for conversions without a model; leave it out with --ref or --paddle")
    if not layouts:
        layouts[given] = layout_from_keys.layout_from_keys(
            given, checkpoint.weights, options.layers, str(checkpoint.path)
        )
    for framework in ("torch", "paddle"):
        if framework not in layouts:
            known = layouts[OTHER[framework]]
            renaming = Renaming(options.rename)
            layers = layout.group_layers(known, functools.partial(storage.absorbs, OTHER[framework]))
            layouts[framework] = renamed_layout(counterpart(OTHER[framework], layers), renaming, framework)


class _Planning:
    """Finds the plan by names and rules, or if names do not fit, by matching the two models."""

    def __init__(
        self, given: str, layouts: Mapping[str, list[StateEntry]], options: Options, partial: bool = False
    ) -> None:
        """`partial`: match what can be matched, and leave the rest without a partner."""
        self.given, self.layouts, self.options, self.partial = given, layouts, options, partial
        self.matching: Matching | None = None
        self.settings: dict[str, Any] = {
            "cast": options.cast,
            "allow_missing": options.allow_missing,
            "allow_unexpected": options.allow_unexpected,
            "transpose": {
                **{e.key: False for e in layouts[OTHER[given]] if fits_any(e.key, options.keep)},
                **{e.key: True for e in layouts[OTHER[given]] if fits_any(e.key, options.transpose)},
            },
        }

    def _sides(self) -> tuple[Side, Side]:
        matching = self.matching
        renaming = Renaming({**(matching.keys if matching else {}), **self.options.rename})
        paths, slots = (matching.paths, matching.slots) if matching else ({}, {})
        rows = dict(zip(("torch", "paddle"), matching.rows if matching else ({}, {}), strict=True))
        sides = [
            read_side(f, self.layouts[f], renaming, paths, slots, rows[f]) for f in (self.given, OTHER[self.given])
        ]
        if matching is None:
            # Before anything else: a mistyped rule is why names do not fit.
            renaming.check_used()
        return sides[0], sides[1]

    def plan(self, models: Mapping[str, RemoteModel]) -> Plan:
        try:
            return self.by_name()
        except UnmatchedError:
            # Rules that were given are meant to be enough; names that fit by half are not matched behind their back.
            if self.options.rename or len(self.layouts) < 2 or set(models) != {"ref", "paddle"}:
                raise
        return self.by_matching(models)

    def by_name(self) -> Plan:
        self.sides = self._sides()
        return make_plan(*self.sides, matched_by="rename" if self.options.rename else "name", **self.settings)

    def by_matching(self, models: Mapping[str, RemoteModel]) -> Plan:
        """To be asked after `by_name`, whose names are where matching starts."""
        reference, paddle = self.sides if self.given == "torch" else self.sides[::-1]
        matchables = matchables_of("torch", reference.layers)

        def trial() -> BothModels:
            return BothModels(
                models["ref"], models["paddle"], trial_inputs.guess_inputs(matchables, self.options.inputs)
            )

        allowed = (*self.options.allow_missing, *self.options.allow_unexpected)
        self.matching = match_layers(reference, paddle, trial, allowed, self.options.remedy, self.partial)
        self.sides = self._sides()
        return make_plan(*self.sides, matched_by=self.matching.matched_by, partial=self.partial, **self.settings)


def _with_dtypes(layout: Sequence[StateEntry], checkpoint: Checkpoint) -> list[StateEntry]:
    """The layout with the file's dtypes; a model only knows the dtypes it was built with."""
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
