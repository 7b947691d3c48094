"""Where in a case a fault goes: the layer, or the component, that is found by what the case holds."""

from collections.abc import Callable
from typing import Any

from twinalign.planted_faults.case_contents import CaseContents, LayerFacts
from twinalign.planted_faults.catalogue import Registration, in_forward, in_model
from twinalign.planted_faults.fault_sites import ModelSite, handed_to

Find = Callable[[CaseContents], str | None]
"""The place in a case (path of a layer, or a component's name), None where the fault does not apply."""


def middle(such: Callable[[LayerFacts], Any]) -> Find:
    """The layer in the middle of such that run: neither the first nor the last, where there are several."""

    def find(contents: CaseContents) -> str | None:
        found = [facts.path for facts in contents.running if such(facts)]
        return found[len(found) // 2] if found else None

    return find


def layers(kind: str, such: Callable[[LayerFacts], Any] = lambda facts: True) -> Find:
    """The layer in the middle of those of a class of paddle.nn (or of several: `"Conv2D|Conv1D"`) that run."""

    def find(contents: CaseContents) -> str | None:
        classes = tuple(getattr(contents.paddle.nn, name) for name in kind.split("|"))
        return middle(lambda facts: isinstance(facts.layer, classes) and such(facts))(contents)

    return find


def own_code(*functions: str, such: Callable[[LayerFacts], Any] = lambda facts: True) -> Find:
    """The layer in the middle of those whose own code calls all these functions."""
    return middle(lambda facts: facts.functions >= set(functions) and such(facts))


def of_own_call(
    fault: str, name: str, *causes: str, such: Callable[[LayerFacts], Any] = lambda facts: True
) -> Registration:
    """A fault whose function `(original, *arguments)` takes the calls of a function that a layer's own code makes."""
    how = handed_to(ModelSite.function, name)
    return in_forward(own_code(name, such=such), *causes, id=fault, how=how)


def component(name: str, such: Callable[[CaseContents], Any], needs: str) -> Find:
    """A component that is no layer, where the case has the stage `needs` and `such` holds."""
    return lambda contents: name if needs in contents.stages and such(contents) else None


def in_training(find: Find) -> Find:
    """The same place, only in cases that run in training mode."""
    return lambda contents: find(contents) if contents.case.train_mode else None


def in_evaluation(find: Find) -> Find:
    """The same place, only in cases that run in evaluation mode."""
    return lambda contents: None if contents.case.train_mode else find(contents)


def in_backward(find: Find, *causes: str, **others: Any) -> Registration:
    """A fault of the gradient in a model that was just built, only in cases whose gradients are recorded."""
    place: Find = lambda contents: find(contents) if "backward" in contents.stages else None  # noqa: E731
    return in_model("backward", place, *causes, **others)
