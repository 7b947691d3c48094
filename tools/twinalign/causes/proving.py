"""The loop that proves causes: each is applied to the reference until one reproduces the port's values.

An `Examined` says which causes to try, runs the reference with one of them and judges the result. It stands for a layer
or the code around layers (`layers/explaining.py`), another component (`component.py`) or the ranks (`search/ranks.py`).
"""

import abc
import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from twinalign.causes.registry import Cause, Explanation
from twinalign.patching import replaced
from twinalign.replay.budget import Budget

SHARE = 1e-6
"""At most this share of a difference may remain after its cause is applied."""
REDUCTION = 0.02
"""If rounding excuses the rest, the difference must have shrunk at least to this share."""
REDUCTION_WITH_CONSTANTS = 1e-3
"""If constants kept in float32 excuse the rest, the difference must have shrunk at least to this share."""
AND = "; and "
"""Between the sentences of two causes that hold together."""
NEAREST = 12
"""So many of the causes that come nearest are tried with each other, then with every other one."""

SECONDS_ALONE, SECONDS_OF_RIVALS = 15.0, 1.5
"""Of processor time: for the causes that are tried alone, and to go on after one that fits."""
SECONDS_OF_LINES, SECONDS_OF_NAMES, SECONDS_OF_TWO = 6.0, 6.0, 8.0
"""Of processor time: for lines of the port, for a cause that is a name for one of them, and for two together."""
SECONDS_OF_CAUSES, SECONDS_OF_A_CAUSE = 10.0, 4.0
"""Of processor time: for named causes before edits are tried, and for one of them before the others are."""
RANK_OF_NO_NAMES = 3
"""From this rank on causes fit any code: they say less than the line itself."""
ALIKE, LINES_ALIKE = 1e-9, 1e-6
"""A line of the port and a cause that names it differ by less, and so where paddle holds its number in float32."""
MOST_RIVALS = 5

Candidate = tuple[Cause, Any]
"""A cause and one of its variants."""
Close = list[tuple[float, Candidate]]
Wanted = Callable[[Cause], bool]


def every(cause: Cause) -> bool:
    """No cause is left out."""
    return True


def _is_plain(cause: Cause) -> bool:
    return not cause.alone


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of one variant.

    Attributes:
        proven: whether the values equal the port's, up to what is excused.
        exact: whether they do without any excuse, so that no other cause need be tried.
        remaining: how much of the difference is left; of two proven causes the one with less is better.
        evidence: facts for the explanation.
        distance: distance from the port's values if this may be one of two causes, else None.
    """

    proven: bool
    exact: bool
    remaining: float
    evidence: dict[str, Any] = dataclasses.field(default_factory=dict)
    distance: float | None = None


class Examined(abc.ABC):
    """Something wrong whose cause is looked for.

    Attributes:
        sentence: how a cause's text and a variant's detail are joined.
        clearly_less: a later proven cause replaces an earlier one if it leaves less than this share of its remainder.
        within_one_cause: whether only other variants of the same cause are tried once one is proven.
        has_other_inputs: whether `same` can tell variants apart, so that others that fit are looked for.
        known_exactly: whether what is proven of something like it has to be exact here.
        only_exact: whether `attempt` need not tell how near a variant comes that is not exact.
        lines_first: whether lines of the port's code are tried before named causes.
        not_tried: what the time did not suffice for, in words.
        applied: the variant that is proven, of both causes if there are two.
        doubted: what gives the port's values, though the port is seen to do something else there; taken for want of
            others.
        line: where that is a name for a line of the port, the variant and the explanation of the line itself.
    """

    sentence: ClassVar[str] = "{text}: {detail}"
    clearly_less: ClassVar[float] = 1.0
    within_one_cause: ClassVar[bool] = False
    has_other_inputs: ClassVar[bool] = False
    known_exactly: ClassVar[bool] = False
    only_exact: bool = False
    not_tried: str = ""
    lines_first: bool = True
    applied: Any = None
    doubted: Sequence[tuple[Sequence[Candidate], Outcome]] = ()
    line: tuple[Any, Explanation] | None = None

    def known(self) -> Iterable[tuple[Sequence[Candidate], Any]]:
        """What is proven of something like it, which is tried first: causes, and the variant that applies them all."""
        return ()

    @abc.abstractmethod
    def candidates(self, wanted: Wanted = every) -> Iterable[Candidate]:
        """Causes that are wanted, and their variants, in the order in which they are tried."""

    def candidates_beside(self, variant: Any, wanted: Wanted) -> Iterable[Candidate]:
        """Those that may mend what a variant leaves wrong."""
        return self.candidates(wanted)

    @abc.abstractmethod
    def attempt(self, causes: Sequence[Cause], variant: Any) -> Outcome | None:
        """Run the reference under a variant of these causes; None if it does not run or proves nothing."""

    def same(self, one: Any, other: Any, share: float = ALIKE) -> bool:
        """Whether two variants give the same on other inputs as well, up to this share of the values."""
        return True

    def may_name(self, line: Any, variant: Any) -> bool:
        """Whether a variant is about what a line of the port is about, so that it may be a name for it."""
        return True

    def holds(self, variant: Any) -> bool:
        """Whether a variant that reproduces what is examined gives the port elsewhere, too, where that is known."""
        return True

    def narrowed(self, candidate: Candidate, outcome: Outcome) -> tuple[Candidate, Outcome]:
        """What of a proven candidate is enough, with its outcome."""
        return candidate, outcome

    def together(self, one: Any, other: Any) -> Sequence[Any]:
        """Variants that apply both at once, if that is possible."""
        return ()


def prove(examined: Examined, budget: Budget | None = None) -> Explanation | None:
    """What is known, if proven here too; else, within the budget, the first exact cause, the best, or two together."""
    for known, variant in examined.known():
        outcome = examined.attempt([cause for cause, _ in known], variant)
        if outcome is not None and (outcome.exact if examined.known_exactly else outcome.proven):
            return _explanation(examined, known, outcome, variant)
    budget = budget or Budget()
    if examined.lines_first and (own := _prove_alone(examined, budget)) is not None:
        return _named(examined, own, budget) or _explanation(examined, [own[0]], own[1], own[0][1])
    untried, close = _in_turn(examined.candidates(_is_plain)), Close()
    found = _prove_named(examined, untried, close, budget, time.process_time() + SECONDS_OF_CAUSES)
    if found is None and not examined.lines_first:
        found = _prove_alone(examined, budget)
    found = found or _prove_alone(examined, budget, close) or _prove_named(examined, untried, close, budget)
    found = found or next(((doubted[0], outcome) for doubted, outcome in examined.doubted), None)
    return _explanation(examined, [found[0]], found[1], found[0][1]) if found else _prove_two(examined, close, budget)


def _in_turn(candidates: Iterable[Candidate]) -> Iterator[Candidate]:
    """Candidates in their order; what is left of a cause that has had its time comes behind all others."""
    left = list[Candidate]()
    for _, variants in itertools.groupby(candidates, lambda candidate: id(candidate[0])):
        until = time.process_time() + SECONDS_OF_A_CAUSE
        for candidate in variants:
            if time.process_time() < until:
                yield candidate
            else:
                left.append(candidate)
    yield from left


def _prove_named(
    examined: Examined, untried: Iterator[Candidate], close: Close, budget: Budget, until: float = math.inf
) -> tuple[Candidate, Outcome] | None:
    """The first exact cause of those that are left, else the one that leaves least; what comes closer is added."""
    best: tuple[Candidate, Outcome] | None = None
    for cause, variant in untried:
        if best is not None and examined.within_one_cause and best[0][0] is not cause:
            break
        if budget.is_spent:
            examined.not_tried = "some of the known causes, and two of them together"
            break
        outcome = examined.attempt([cause], variant)
        if outcome is not None:
            allowed = math.inf if best is None else examined.clearly_less * best[1].remaining
            if outcome.proven and (best is None or outcome.remaining < allowed):
                best = (cause, variant), outcome
            if outcome.exact and best is not None:
                best = examined.narrowed(*best)
                _name_rivals(examined, *best, untried, budget)
                break
            if outcome.distance is not None:
                close.append((outcome.distance, (cause, variant)))
        if best is None and time.process_time() > until:
            break
    return best


def _named(examined: Examined, own: tuple[Candidate, Outcome], budget: Budget) -> Explanation | None:
    """A cause that does on other inputs, too, what a line of the port does, so that it is a name for it."""
    until = time.process_time() + SECONDS_OF_NAMES
    for cause, variant in examined.candidates(lambda cause: not cause.alone and cause.rank < RANK_OF_NO_NAMES):
        if budget.is_spent or time.process_time() > until:
            break
        fits = examined.may_name(own[0][1], variant) and not (cause.drops and own[0][1].keeps_operations)
        outcome = examined.attempt([cause], variant) if fits else None
        if outcome is None or not outcome.proven or not examined.holds(variant):
            continue
        if examined.same(own[0][1], variant, LINES_ALIKE if cause.float32_constants else ALIKE):
            examined.line = own[0][1], _explanation(examined, [own[0]], own[1], own[0][1])
            if "lines_of_port" in own[1].evidence:
                outcome.evidence["lines_of_port"] = own[1].evidence["lines_of_port"]
            return _explanation(examined, [(cause, variant)], outcome, variant)
    return None


def _name_rivals(
    examined: Examined, first: Candidate, outcome: Outcome, others: Iterable[Candidate], budget: Budget
) -> None:
    """Put into the evidence of an exact cause what else fits these inputs, and does something else on others."""
    if not examined.has_other_inputs or not outcome.proven:
        return
    rivals: list[Candidate] = []
    until = time.process_time() + SECONDS_OF_RIVALS
    for cause, variant in others:
        if budget.is_spent or time.process_time() > until or len(rivals) == MOST_RIVALS:
            break
        with replaced(examined, "only_exact", True):
            tried = examined.attempt([cause], variant)
        if tried is None or not tried.exact or not examined.holds(variant):
            continue
        if not any(examined.same(known, variant) for _, known in (first, *rivals)):
            rivals.append((cause, variant))
    if rivals:
        outcome.evidence["rivals"] = [sentence_of(examined, candidate) for candidate in rivals]


def _prove_alone(examined: Examined, budget: Budget, close: Close | None = None) -> tuple[Candidate, Outcome] | None:
    """The first of the causes that are tried alone to be exact; lines of the port's code, or any but these.

    Others that fit are its `rivals` in the evidence if other inputs could tell them from it, else `alike`. Those that
    come closer are added to `close`; without it lines are tried.
    """
    own_code = close is None
    fitting: list[tuple[Candidate, Outcome]] = []
    alike: list[Candidate] = []
    until = time.process_time() + (SECONDS_OF_LINES if own_code else SECONDS_ALONE)
    for cause, variant in examined.candidates(lambda cause: cause.alone and cause.own_code == own_code):
        is_late = time.process_time() > until and not getattr(variant, "is_whole", False)  # whose proof took the time
        if budget.is_spent or is_late:
            if not fitting and not own_code:
                examined.not_tried = examined.not_tried or f"some of {cause.id}"
            break
        outcome = examined.attempt([cause], variant)
        if outcome is not None and outcome.distance is not None and close is not None:
            close.append((outcome.distance, (cause, variant)))
        if outcome is None or not outcome.exact or not examined.holds(variant):
            continue
        if fitting and examined.same(fitting[0][0][1], variant):
            first_lines, lines = (getattr(one, "lines", ()) for one in (fitting[0][0][1], variant))
            if not first_lines or any(line not in lines for line in first_lines):  # else the others do nothing
                alike.append((cause, variant))
        elif all(not examined.same(known, variant) for (_, known), _ in fitting[1:]):
            fitting.append(((cause, variant), outcome))
        until = min(until, time.process_time() + SECONDS_OF_RIVALS)
    if not fitting:
        return None
    (first, outcome), *rivals = fitting
    for name, others in (("rivals", [candidate for candidate, _ in rivals]), ("alike", alike)):
        texts = dict.fromkeys(sentence_of(examined, candidate) for candidate in others)
        texts.pop(sentence_of(examined, first), None)
        if texts:
            outcome.evidence[name] = list(texts)[:MOST_RIVALS]
    return first, outcome


def _prove_two(examined: Examined, close: Close, budget: Budget) -> Explanation | None:
    """Try two together: the nearest with one another, then each of them with all that is left to try beside it.
    Edits are among them only if each was tried alone, so that no single one says the same."""
    wanted = _is_plain if examined.not_tried else lambda cause: not cause.own_code
    nearest: dict[str, Candidate] = {}  # each effect once
    for distance, candidate in sorted(close, key=lambda item: item[0]):
        if wanted(candidate[0]) and len(nearest) < NEAREST:
            nearest.setdefault(f"{distance:.9e}", candidate)
    until, tried = time.process_time() + SECONDS_OF_TWO, set[frozenset[str]]()
    for first, second in _pairs(examined, list(nearest.values()), wanted):
        if budget.is_spent or time.process_time() > until:
            examined.not_tried = examined.not_tried or f"some of {first[0].id} and {second[0].id} together"
            return None
        pair = frozenset((_named_by(first), _named_by(second)))
        if len(pair) == 2 and pair not in tried and (found := _both(examined, first, second)) is not None:
            return found
        tried.add(pair)
    return None


def _pairs(examined: Examined, nearest: list[Candidate], wanted: Wanted) -> Iterator[tuple[Candidate, Candidate]]:
    yield from itertools.combinations(nearest, 2)
    for first in nearest:
        yield from ((first, second) for second in examined.candidates_beside(first[1], wanted))


def _named_by(candidate: Candidate) -> str:
    return f"{candidate[0].id}: {candidate[1].detail}: {list(getattr(candidate[1], 'changes', ()))}"


def _both(examined: Examined, one: Candidate, other: Candidate) -> Explanation | None:
    """Two causes that give the port together; where one is an edit, as strictly as for an edit alone."""
    edited = one[0].alone or other[0].alone
    for both in examined.together(one[1], other[1]):
        outcome = examined.attempt([one[0], other[0]], both)
        if outcome is not None and outcome.proven and (not edited or (outcome.exact and examined.holds(both))):
            return _explanation(examined, [one, other], outcome, both)
    return None


def _explanation(examined: Examined, found: Sequence[Candidate], outcome: Outcome, applied: Any) -> Explanation:
    examined.applied = applied
    found = sorted(found, key=lambda candidate: candidate[0].id)
    texts = [sentence_of(examined, candidate) for candidate in found]
    return Explanation("+".join(cause.id for cause, _ in found), AND.join(texts), evidence=outcome.evidence)


def sentence_of(examined: Examined, candidate: Candidate) -> str:
    """A cause and the detail of its variant in words."""
    cause, variant = candidate
    return examined.sentence.format(text=cause.text, detail=variant.detail) if variant.detail else cause.text


def again(examined: Examined, explanation: Mapping[str, Any]) -> list[Candidate] | None:
    """The causes of an explanation of something else, with the same details, among the candidates of these ids."""
    ids, texts = explanation["id"].split("+"), explanation["text"].split(AND)
    found: dict[tuple[str, str], Candidate] = {}
    for candidate in examined.candidates(lambda cause: cause.id in ids):
        found.setdefault((candidate[0].id, sentence_of(examined, candidate)), candidate)
    wanted = list(zip(ids, texts, strict=False))
    return [found[key] for key in wanted] if len(ids) == len(texts) and found.keys() >= set(wanted) else None
