"""Image operations that are left out, done twice, done in another order or exchanged for another one."""

from collections.abc import Callable, Iterator
from typing import Any

from twinalign.causes.data.subject import ENHANCER, IMAGE, PARTS, Chain, ImageSubject, image_cause, of_part
from twinalign.causes.registry import Variant

_FLIP_LEFT_RIGHT, _ROTATE_180 = 0, 3


@image_cause(rank=-1)
def step_missing(subject: ImageSubject) -> Iterator[Variant]:
    """An operation is left out."""
    for number, name in enumerate(subject.names):
        if subject.chains[0].given is not None or number > 0:
            yield subject.variant(name, edit=lambda chain, name=name: [s for s in chain.steps if s[0] != name])
    if subject.port_names:
        names = {id(chain): set(own) for chain, own in zip(subject.chains, subject.port_names, strict=True)}
        missing = {n for chain in subject.chains for n, _ in chain.steps if n not in names[id(chain)]}
        yield subject.variant(
            ", ".join(sorted(missing)), edit=lambda chain: [step for step in chain.steps if step[0] in names[id(chain)]]
        )
    for part, name in PARTS.items():
        yield subject.called(name, ENHANCER, "enhance", of_part(part, lambda original, enhancer, f: enhancer.image))
    for name, owner, function in (
        ("flip", IMAGE, "transpose"),
        ("filter", IMAGE, "filter"),
        ("solarisation", "PIL.ImageOps", "solarize"),
        ("resizing", IMAGE, "resize"),
        ("cropping", IMAGE, "crop"),
    ):
        yield subject.called(name, owner, function, lambda original, image, *rest, **named: image)


@image_cause()
def step_doubled(subject: ImageSubject) -> Iterator[Variant]:
    """An operation is done twice."""
    for name in subject.names:
        yield subject.variant(
            name, edit=lambda chain, name=name: [s for s in chain.steps for _ in range(2 if s[0] == name else 1)]
        )

    def enhanced_twice(original: Callable, enhancer: Any, factor: float) -> Any:
        return original(type(enhancer)(original(enhancer, factor)), factor)

    for part, name in PARTS.items():
        yield subject.called(name, ENHANCER, "enhance", of_part(part, enhanced_twice))
    for name, function in (("filter", "filter"), ("flip", "transpose")):
        yield subject.called(name, IMAGE, function, lambda original, image, how: original(original(image, how), how))


@image_cause(rank=-1)
def step_order(subject: ImageSubject) -> Iterator[Variant]:
    """The steps are in another order."""
    if subject.port_names and all(
        sorted(own) == sorted(name for name, _ in chain.steps)
        for chain, own in zip(subject.chains, subject.port_names, strict=True)
    ):
        order = {id(chain): list(own) for chain, own in zip(subject.chains, subject.port_names, strict=True)}
        yield subject.variant(
            ", ".join(subject.port_names[0]),
            edit=lambda chain: sorted(chain.steps, key=lambda step: order[id(chain)].index(step[0])),
        )
    names = subject.names
    for first in range(1, len(names)):
        for second in range(first + 1, len(names)):

            def edit(chain: Chain, one: str = names[first], other: str = names[second]) -> list:
                steps, found = list(chain.steps), [name for name, _ in chain.steps]
                if one in found and other in found:
                    a, b = found.index(one), found.index(other)
                    steps[a], steps[b] = steps[b], steps[a]
                return steps

            yield subject.variant(f"{names[first]} and {names[second]} exchanged", edit=edit)


@image_cause()
def flip_rotated(subject: ImageSubject) -> Iterator[Variant]:
    """Images are turned where they should be mirrored."""

    def turn(original: Callable, image: Any, method: Any) -> Any:
        return original(image, _ROTATE_180 if int(method) == _FLIP_LEFT_RIGHT else method)

    yield subject.called("", IMAGE, "transpose", turn)
