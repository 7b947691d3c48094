"""Where a fault goes, one place a case, and how the place is spoiled."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from twinalign.case import Case
from twinalign.patching import replaced
from twinalign.selftest.interception import Interception
from twinalign.selftest.survey import LayerFacts, Survey, image_functions

Find = Callable[[Survey], str | None]
Item = TypeVar("Item")


def middle(found: Sequence[Item]) -> Item | None:
    """The one in the middle: neither the first nor the last of its kind, where there are several."""
    return found[len(found) // 2] if found else None


def place_of(found: Sequence[LayerFacts]) -> str | None:
    """Path of the layer in the middle."""
    chosen = middle(found)
    return None if chosen is None else chosen.path


def layers(kind: str, such: Callable[[LayerFacts], Any] = lambda facts: True) -> Find:
    """The layer in the middle of those of a class of paddle.nn (or of several: `"Conv2D|Conv1D"`) that run."""

    def find(survey: Survey) -> str | None:
        classes = tuple(getattr(survey.paddle.nn, name) for name in kind.split("|"))
        return place_of([facts for facts in survey.running if isinstance(facts.layer, classes) and such(facts)])

    return find


def own_code(*functions: str, such: Callable[[LayerFacts], Any] = lambda facts: True) -> Find:
    """The layer in the middle of those whose own code calls all these functions."""

    def find(survey: Survey) -> str | None:
        return place_of([f for f in survey.running if f.functions >= set(functions) and such(f)])

    return find


def component(name: str, such: Callable[[Survey], Any], needs: str) -> Find:
    """A component that is no layer, where the case has the stage `needs` and `such` holds."""

    def find(survey: Survey) -> str | None:
        return name if needs in survey.stages and such(survey) else None

    return find


def in_training(find: Find) -> Find:
    """The same place, only in cases that run in training mode."""
    return lambda survey: find(survey) if survey.case.train_mode else None


def in_evaluation(find: Find) -> Find:
    """The same place, only in cases that run in evaluation mode."""
    return lambda survey: None if survey.case.train_mode else find(survey)


def with_loss(find: Find) -> Find:
    """The same place, only in cases whose gradients are recorded."""
    return lambda survey: find(survey) if "backward" in survey.stages else None


@dataclasses.dataclass
class ModelPlace:
    """A layer of a model that is to be spoiled.

    Attributes:
        paddle: the module.
        model, layer: the whole, and the chosen layer.
        interception: of the functions that the layer's own code calls.
        replacements: name of a function → what takes its calls; filled by `function`.
    """

    paddle: Any
    case: Case
    model: Any
    layer: Any
    interception: Interception
    replacements: dict[str, Callable[..., Any]]

    def forward(self, replacement: Callable[..., Any]) -> None:
        """Let `replacement(original, *arguments)` take the calls of the layer."""
        self.interception.around(self.layer, replacement)

    def output(self, change: Callable[[Any], Any]) -> None:
        """Change what the layer returns."""
        self.forward(lambda original, *arguments, **keywords: change(original(*arguments, **keywords)))

    def input(self, change: Callable[[Any], Any]) -> None:
        """Change the first argument of the layer."""
        self.forward(lambda original, x, *others, **keywords: original(change(x), *others, **keywords))

    def function(self, name: str, replacement: Callable[..., Any]) -> None:
        """Let `replacement(original, *arguments)` take the calls of a function that the layer's own code makes."""
        self.replacements[name] = replacement

    def first(self, name: str, replacement: Callable[..., Any], fits: Callable[..., bool]) -> None:
        """As `function`, but only for the first call with fitting arguments each time that the layer runs."""
        waiting = False

        def start(original: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
            nonlocal waiting
            waiting = True
            return original(*arguments, **keywords)

        def call(original: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
            nonlocal waiting
            if not waiting or not fits(*arguments):
                return original(*arguments, **keywords)
            waiting = False
            return replacement(original, *arguments, **keywords)

        self.forward(start)
        self.function(name, call)

    def set_value(self, name: str, change: Callable[[Any], Any]) -> None:
        """Change a parameter or buffer of the layer, given and returned as a numpy array."""
        tensor = getattr(self.layer, name)
        value = change(tensor.numpy().copy()).astype(tensor.numpy().dtype)
        tensor.set_value(value)


@dataclasses.dataclass
class CasePlace:
    """A case whose methods are to be spoiled."""

    paddle: Any
    case: Any

    def around(self, method: str, replacement: Callable[..., Any]) -> None:
        """Let `replacement(original, *arguments)` take the calls of a method of the case."""
        original = getattr(self.case, method)
        setattr(self.case, method, lambda *arguments, **keywords: replacement(original, *arguments, **keywords))

    def result(self, method: str, change: Callable[[Any], Any]) -> None:
        """Change what a method of the case returns."""
        self.around(method, lambda original, *arguments, **keywords: change(original(*arguments, **keywords)))

    def during(self, method: str, replacements: Mapping[str, Callable[..., Any]]) -> None:
        """Let `replacements[name](original, *arguments)` take all calls of functions while a method runs."""
        interception = Interception(self.paddle)

        def replace(name: str, original: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Any:
            return replacements[name](original, *arguments, **keywords)

        def run(original: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
            with interception.intercepted(replacements, replace, always=True):
                return original(*arguments, **keywords)

        self.around(method, run)


@dataclasses.dataclass
class ProcessPlace:
    """The process of the port, in which functions of libraries are to be spoiled while a fault is planted."""

    paddle: Any
    survey: Survey
    stack: contextlib.ExitStack

    def around(self, owner: Any, name: str, replacement: Callable[..., Any]) -> None:
        """Let `replacement(original, *arguments)` take the calls of `owner.name`."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def call(*arguments: Any, **keywords: Any) -> Any:
            return replacement(original, *arguments, **keywords)

        self.stack.enter_context(replaced(owner, name, call))

    def transform(self, name: str, replacement: Callable[..., Any]) -> None:
        """Let `replacement(original, *arguments)` take the calls of an image operation of `survey.TRANSFORMS`."""
        for owner, attribute in image_functions(self.survey, name):
            self.around(owner, attribute, replacement)
