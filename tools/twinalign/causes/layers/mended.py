"""The whole decides: the reference with all proven causes put into it, run to its end, must give what the port gives.

What has no cause is not mended: there the port's own values take the place of the reference's. A cause whose unit does
not give the port's values in the port's own pass does not bear out; a cause without which the whole still gives the
port's results is needless.
"""

import contextlib
import copy
import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.causes.layers.subject import ValueVariant
from twinalign.causes.proving import REDUCTION_WITH_CONSTANTS
from twinalign.recorder.plain_attributes import PlainAttributes
from twinalign.replay.case_run import KeptState
from twinalign.replay.known_before import KnownBefore
from twinalign.replay.layer_calls import wrapped
from twinalign.replay.layers import FLOOR_FACTOR, KEPT, WHOLE
from twinalign.replay.nested_tensors import put_together, take_apart
from twinalign.replay.reference_pass import ReferencePass
from twinalign.replay.rerun_unit import PERTURBATION, noisy
from twinalign.replay.wrong_unit import constants_in_float32, rewriting
from twinalign.verdict.array_difference import difference, greatest_relative

MENDS = "mends"
_SAME_INPUT, _SAME_OUTPUT = 1e-9, 1e-6
"""A unit that is given the port's inputs, up to the first, must return the port's outputs, up to the second: what
paddle keeps in float32 changes less."""
_CLEARLY = 10.0
"""Results that differ by so many times what rounding explains need no second look."""
_MOST_LEFT_OUT = 24
"""So many causes are left out one by one, to see whether the whole needs them."""


@dataclasses.dataclass(frozen=True)
class Mend:
    """A proven cause in one unit: what was reported of the unit, the phase, and the variant that proved it.

    `line`: where the cause is a name for a line of the port, the variant and the explanation of the line itself.
    """

    suspect: Mapping[str, Any]
    phase: str
    variant: Any
    line: tuple[Any, dict[str, Any]] | None = None
    ends_before: bool = False
    """Whether the port calls behind its unit the activation that the reference's ends with."""


class MendedPass:
    """Forward passes of the whole reference in which units compute as the port does."""

    def __init__(self, reference: ReferencePass, port: Mapping[str, np.ndarray], unexplained: Collection[int]) -> None:
        self._reference, self._run, self._backend = reference, reference.run, reference.run.backend
        self._port = port
        self._initial = KeptState(self._backend)
        self._initial.keep(self._backend.state_tensors(self._run.model))
        self._calls = {(call.path, call.ordinal): call for call in reference.stack.calls}
        self._unexplained = unexplained
        self._known: KnownBefore | None = None
        self.not_borne_out: set[int] = set()
        """Numbers of the calls that were given the port's inputs and did not return the port's outputs."""

    def __call__(self, mends: Sequence[Mend], perturbation: float = 0.0) -> dict[str, np.ndarray]:
        """What forward and loss return, and the state afterwards, named as `own_forward` names them."""
        run, backend, model = self._run, self._backend, self._run.model
        self._counts: Counter[str] = Counter()
        self._noise = perturbation
        if self._known is not None:
            self._known.begin({id(mend): self._path(mend.suspect["call"]) for mend in mends}, perturbation > 0.0)
        self._found: dict[str, np.ndarray] = {}
        with contextlib.ExitStack() as stack:
            stack.callback(self._initial.restore, backend.state_tensors(model))
            stack.callback(PlainAttributes(backend, model).restore)
            stack.enter_context(rewriting().unchanged(model))
            stack.enter_context(constants_in_float32())
            stack.enter_context(backend.default_dtype(run.dtype))
            stack.enter_context(backend.no_grad())
            stack.enter_context(wrapped(backend.named_layers(model), self._around))
            self._active = []
            self._entered: dict[str, tuple[int, list[np.ndarray]]] = {}
            layers = dict(backend.named_layers(model))
            for mend in mends:
                if not isinstance(mend.variant, ValueVariant):
                    mode = stack.enter_context(mend.variant.apply(each=True))
                    mode.paused = True
                    self._active.append((mend, mode, {self._path(number) for number in mend.suspect["children"]}))
                    if (path := self._path(mend.suspect["call"])) in layers:
                        stack.callback(layers[path].register_forward_hook(self._leaving(path)).remove)
            self._ends_before = {mend.suspect["call"] for mend in mends if mend.ends_before}
            scaled = [mend for mend in mends if isinstance(mend.variant, ValueVariant)]
            self._scaled = {self._path(mend.suspect["call"]): mend for mend in scaled}
            self._scaled_before = {number: mend for mend in scaled for number in mend.suspect["children"]}
            run.through(self._around)
            tensors = backend.state_tensors(model).items()
            state = {f"state.{n}": backend.to_array(tensor) for n, tensor in tensors if not backend.trainable(tensor)}
        return self._found | state

    def on_one_sample(self) -> "MendedPass | None":
        """Such passes of the first sample of the batch, which are compared with nothing; None if there is no other."""
        first = next(iter(self._run.inputs().values()), None)
        if first is None or not first.ndim or first.shape[0] < 2:
            return None
        found = copy.copy(self)
        found._run, found._port = dataclasses.replace(self._run, parts=first.shape[0]), {}
        found._known = None if self._reference.moved else KnownBefore(self._backend)
        return found

    def _path(self, number: int) -> str:
        return self._reference.stack.calls[number].path

    def _around(self, path: str, layer: Any, forward: Callable[..., Any], arguments: tuple, keywords: dict) -> Any:
        backend = self._backend
        call = self._calls.get(key := (path, self._counts[path]))
        self._counts[path] += 1
        if layer is None and self._noise:
            arguments, keywords = self._moved((arguments, keywords))
        if call is not None and call.number in self._scaled_before:
            tensors, skeleton = take_apart((arguments, keywords), backend.is_tensor)
            given_to = f"input.{call.label}"
            arguments, keywords = put_together(skeleton, _adjusted(self._scaled_before[call.number], given_to, tensors))
        compared = call is not None and self._is_compared(call.number)
        tensors = take_apart((arguments, keywords), backend.is_tensor)[0] if compared else []
        given = [backend.to_array(tensor) for tensor in tensors]  # copies: the layer may change them in place
        with contextlib.ExitStack() as stack:
            for mend, mode, children in self._active:
                if path in children:  # matched layers of the unit are not its own code
                    stack.callback(setattr, mode, "paused", mode.paused)
                    mode.paused = True
                elif layer is None and self._path(mend.suspect["call"]) == path:
                    stack.callback(setattr, mode, "paused", True)
                    mode.paused = False
            run = functools.partial(forward, *arguments, **keywords)
            result = run() if self._known is None else self._known.result(key, self._counts, run)
        returned, skeleton = take_apart(result, backend.is_tensor)
        if path in self._scaled:
            returned = _adjusted(self._scaled[path], "output", returned)
        is_mended = layer is not None and any(self._path(mend.suspect["call"]) == path for mend, *_ in self._active)
        if call is not None and is_mended:
            self._entered[path] = call.number, given
        elif call is not None:
            returned = self._compared(call.number, given, returned)
        if layer is None:
            self._found |= {f"{path}.{number}": backend.to_array(t) for number, t in enumerate(returned)}
        return put_together(skeleton, returned)

    def _leaving(self, path: str) -> Callable[[Any, Any, Any], Any]:
        """Hook of a mended layer, which is compared here: a cause may change what it returns after its `forward`."""

        def hook(layer: Any, arguments: Any, result: Any) -> Any:
            returned, skeleton = take_apart(result, self._backend.is_tensor)
            entered = self._entered.pop(path, None)
            return result if entered is None else put_together(skeleton, self._compared(*entered, returned))

        return hook

    def _is_compared(self, number: int) -> bool:
        return f"output.{number}.0" in self._port and number not in self._ends_before

    def _compared(self, number: int, given: Sequence[np.ndarray], returned: list[Any]) -> list[Any]:
        """What a call returns, or what it returns in the port where its cause is unknown."""
        if not self._is_compared(number):
            return returned
        theirs = [self._port[name] for i in range(len(returned)) if (name := f"output.{number}.{i}") in self._port]
        ours = [self._backend.values_of(tensor) for tensor in returned]
        if [array.shape for array in theirs] != [array.shape for array in ours]:
            return returned
        if number in self._unexplained:
            return [self._backend.to_tensor(array, self._run.dtype, self._run.device) for array in theirs]
        inputs = [(self._port.get(f"input.{number}.{i}", own), own) for i, own in enumerate(given)]
        outputs = zip(theirs, ours, strict=True)
        if greatest_relative(inputs) <= _SAME_INPUT and greatest_relative(outputs) > _SAME_OUTPUT:
            self.not_borne_out.add(number)
        return returned

    def _moved(self, value: Any) -> Any:
        tensors, skeleton = take_apart(value, self._backend.is_tensor)
        generator = np.random.default_rng(0)
        arrays = (noisy(self._backend.values_of(tensor), self._noise, generator) for tensor in tensors)
        moved = [self._backend.to_tensor_like(array, tensor) for array, tensor in zip(arrays, tensors, strict=True)]
        return put_together(skeleton, moved)


def _adjusted(mend: Mend, place: str, tensors: Sequence[Any]) -> list[Any]:
    """Tensors of a unit, those that are wrong as the cause has them."""
    named = {f"{place}.{number}": tensor for number, tensor in enumerate(tensors)}
    wrong = {name: tensor for name, tensor in named.items() if name in mend.suspect["differences"]}
    return list({**named, **mend.variant.adjust(wrong)}.values())


def reference_whole(
    worker: Any, folder: str, mends: Sequence[Sequence[Any]], unexplained: Sequence[int]
) -> dict[str, Any]:
    """Put proven causes into the reference and run it to its end.

    Args:
        mends: number of the call and phase of those that are proven in outputs or buffers.
        unexplained: numbers of the calls that have the port's values instead.

    Returns:
        `reproduces`: whether the whole then gives the port's results; `refuted`: numbers of the calls whose cause does
        not bear out; `lines`: of those whose name does not bear out, but the port's line itself, the number and the
        line's explanation; `needless`: call and phase of causes without which the whole gives the port's results too.
    """
    try:
        return _whole(worker, folder, mends, unexplained)
    except Exception:  # a user's code may not run twice: then the units alone have decided
        return {"reproduces": None, "refuted": [], "lines": [], "needless": []}


def _runs(whole: MendedPass, mend: Mend) -> bool:
    """Whether the reference runs to its end with one cause alone."""
    try:
        whole([mend])
    except Exception:
        return False
    return True


def _whole(worker: Any, folder: str, mends: Sequence[Sequence[Any]], unexplained: Sequence[int]) -> dict[str, Any]:
    with np.load(Path(folder) / WHOLE, allow_pickle=False) as stored:
        port = dict(stored)
    kept: list[Mend] = [worker.kept[MENDS][number, phase] for number, phase in mends]
    reference: ReferencePass = worker.kept[KEPT]
    whole = MendedPass(reference, port, frozenset(unexplained))
    plain = whole([]) if unexplained else reference.final
    whole.not_borne_out.clear()
    try:
        mended = whole(kept)
    except Exception:  # the reference runs without the causes, the port runs, and the reference with them does not
        refuted = [mend.suspect["call"] for mend in kept if mend.phase == "forward" and not _runs(whole, mend)]
        return {"reproduces": False, "refuted": refuted, "lines": [], "needless": []}
    lines: list[tuple[int, dict[str, Any]]] = []
    for at, mend in enumerate(kept):
        if mend.line is not None and mend.phase == "forward" and mend.suspect["call"] in whole.not_borne_out:
            lines.append((mend.suspect["call"], mend.line[1]))
            kept[at] = dataclasses.replace(mend, variant=mend.line[0])
    if lines:
        whole.not_borne_out.clear()
        mended = whole(kept)
    refuted = sorted(whole.not_borne_out & {mend.suspect["call"] for mend in kept if mend.phase == "forward"})
    names = [name for name in port.keys() & plain.keys() if port[name].shape == plain[name].shape]
    result = _Result(whole, kept, {name: port[name] for name in names}, mended)
    # Results of another shape say nothing of what stands before them.
    comparable = {name for name in plain if not name.startswith("state.")} <= set(names)
    reproduces = comparable and result.reproduces(plain)
    # The port's own values in a unit without a cause would hide what others change before it.
    decided = reproduces and not refuted and not unexplained and len(kept) <= _MOST_LEFT_OUT
    needless = _needless(result) if decided else []
    return {"reproduces": reproduces, "refuted": refuted, "lines": lines, "needless": needless}


class _Result:
    """What the whole gives with all causes, beside what the port gives."""

    def __init__(
        self, whole: MendedPass, kept: Sequence[Mend], port: Mapping[str, np.ndarray], mended: Mapping[str, np.ndarray]
    ) -> None:
        self.whole, self.kept, self.port, self.mended = whole, kept, port, mended
        self._left = {name: difference(port[name], mended[name]).rms for name in port}

    @functools.cached_property
    def floors(self) -> Mapping[str, float]:
        """What rounding may change, by a pass of its own."""
        noisy = self.whole(self.kept, PERTURBATION)
        return {name: FLOOR_FACTOR * difference(noisy[name], self.mended[name]).rms for name in self.port}

    def reproduces(self, plain: Mapping[str, np.ndarray]) -> bool:
        """Whether these are the port's results; `plain` are those of the reference without causes."""
        allowed = {name: REDUCTION_WITH_CONSTANTS * difference(self.port[name], plain[name]).rms for name in self.port}
        return all(left <= allowed[name] for name, left in self._left.items()) or all(
            left <= allowed[name] + self.floors[name] for name, left in self._left.items()
        )

    def differs_with(self, mends: Sequence[Mend], times: float = 1.0) -> bool:
        """Whether the whole gives results with these causes that rounding does not explain, `times` that it does."""
        found = self.whole(mends)
        return any(
            difference(self.port[name], found[name]).rms > times * (self.floors[name] + left)
            for name, left in self._left.items()
        )


def _needless(result: _Result) -> list[list[Any]]:
    """Call and phase of the causes without which the whole gives the port's results, too."""
    sample = _of_one_sample(result)
    needed = list(result.kept)
    for mend in result.kept:
        others = [other for other in needed if other is not mend]
        # What one sample of the batch needs, the batch needs.
        if not (sample and sample.differs_with(others, _CLEARLY)) and not result.differs_with(others):
            needed = others
    return [[mend.suspect["call"], mend.phase] for mend in result.kept if all(mend is not one for one in needed)]


def _of_one_sample(result: _Result) -> _Result | None:
    """The same for the first sample of the batch; None if that does not give there what it gives in the batch."""
    whole = result.whole.on_one_sample()
    try:
        mended = whole(result.kept) if whole is not None else {}
    except Exception:  # the case may be made for batches of one size
        return None
    shapes = {name: (mended[name].shape, result.port[name].shape) for name in mended.keys() & result.port.keys()}
    names = [n for n, (part, batch) in shapes.items() if part and part[:1] < batch[:1] and part[1:] == batch[1:]]
    if whole is None or not names:
        return None
    sample = _Result(whole, result.kept, {name: result.port[name][: len(mended[name])] for name in names}, mended)
    in_batch = {name: result.mended[name][: len(mended[name])] for name in names}
    same = all(difference(in_batch[name], mended[name]).rms <= sample.floors[name] for name in names)
    return sample if same else None
