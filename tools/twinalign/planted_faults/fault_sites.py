"""What a fault changes: a layer of a model, the methods of a case, or functions of a library."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from twinalign.case.definition import Case
from twinalign.patching import replaced
from twinalign.planted_faults.case_contents import CaseContents, image_functions
from twinalign.planted_faults.interception import Interception

Original = Callable[..., Any]
"""The function whose calls a fault takes, which is handed to the fault together with the arguments of each call."""


def through(plant: Callable[..., None], *names: str) -> Callable[[Callable[..., Any]], Callable[[Any], None]]:
    """Decorator: `plant(site, *names, replacement)` plants the function, which is called with the site first.

    `@through(CaseSite.around, "loss")` takes the calls of `Case.loss`, given as `(site, original, *arguments)`.
    """

    def decorate(function: Callable[..., Any]) -> Callable[[Any], None]:
        @functools.wraps(function)
        def call(site: Any) -> None:
            plant(site, *names, functools.partial(function, site))

        return call

    return decorate


@dataclasses.dataclass
class ModelSite:
    """A layer of a model that is to be spoiled.

    Attributes:
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
class CaseSite:
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
class ProcessSite:
    """The process of the port, in which functions of libraries are to be spoiled while a fault is planted."""

    paddle: Any
    contents: CaseContents
    stack: contextlib.ExitStack

    def around(self, owner: Any, name: str, replacement: Callable[..., Any]) -> None:
        """Let `replacement(original, *arguments)` take the calls of `owner.name`."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def call(*arguments: Any, **keywords: Any) -> Any:
            return replacement(original, *arguments, **keywords)

        self.stack.enter_context(replaced(owner, name, call))

    def transform(self, name: str, replacement: Callable[..., Any]) -> None:
        """Let `replacement(original, *arguments)` take the calls of an operation of `case_contents.TRANSFORMS`."""
        for owner, attribute in image_functions(self.contents, name):
            self.around(owner, attribute, replacement)


def handed_to(method: Callable[..., None], *names: Any) -> Callable[[Any], Callable[[Any], None]]:
    """How a function is planted (`Registration.how`): by `method(site, *names, function)`."""
    return lambda function: lambda site: method(site, *names, function)


def set_attributes(**values: Any) -> Callable[[ModelSite], None]:
    """What sets attributes of the layer."""

    def plant(site: ModelSite) -> None:
        for name, value in values.items():
            setattr(site.layer, name, value)

    return plant


def _as_plant(method: Callable[..., None]) -> Callable[..., Callable[[Any], None]]:
    return lambda *arguments: lambda site: method(site, *arguments)


set_value = _as_plant(ModelSite.set_value)
change_output = _as_plant(ModelSite.output)
replace_forward = _as_plant(ModelSite.forward)
replace_call = _as_plant(ModelSite.function)
replace_method = _as_plant(CaseSite.around)
change_result = _as_plant(CaseSite.result)
replace_during = _as_plant(CaseSite.during)
