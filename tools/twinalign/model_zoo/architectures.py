"""Which architectures both libraries have, and how each side builds them; imports no framework."""

import concurrent.futures
import dataclasses
import difflib
import importlib
import sys
from collections.abc import Collection, Mapping, Sequence

from twinalign.errors import InputError
from twinalign.files.freshness import interpreter_versions
from twinalign.processes.side_process import ChildError, SideProcess

LIBRARIES = {"ref": "torchvision.models", "paddle": "paddle.vision.models"}


@dataclasses.dataclass(frozen=True)
class Pair:
    """The call that builds an architecture in each library, as `twinalign convert` takes it after the colon."""

    torch: str
    paddle: str

    def factories(self) -> dict[str, str]:
        """Side → `module:factory(arguments)`."""
        return {"ref": f"{LIBRARIES['ref']}:{self.torch}", "paddle": f"{LIBRARIES['paddle']}:{self.paddle}"}


def pair_of(name: str) -> Pair:
    """How both sides build the architecture with this torchvision name."""
    if name.startswith("vgg") and name.endswith("_bn"):  # an argument in paddle
        return Pair(name, f"{name.removesuffix('_bn')}(batch_norm=True)")
    if name == "inception_v3":  # only torchvision has the auxiliary classifier
        return Pair(f"{name}(aux_logits=False, init_weights=False)", name)
    return Pair(name, name)


def shared(torch_names: Collection[str], paddle_names: Collection[str]) -> dict[str, Pair]:
    """torchvision's name → pair for every architecture in both lists, in alphabetical order."""
    pairs = {name: pair_of(name) for name in sorted(torch_names)}
    return {name: pair for name, pair in pairs.items() if pair.paddle.partition("(")[0] in paddle_names}


def installed(pythons: Mapping[str, str | None]) -> dict[str, Pair]:
    """The architectures that both libraries have in these interpreters (side → path; this one if None).

    Raises:
        InputError: an interpreter does not start or lacks the library.
    """
    with concurrent.futures.ThreadPoolExecutor(len(LIBRARIES)) as pool:  # an import takes seconds
        return shared(*pool.map(lambda side: _names_in(side, pythons.get(side)), LIBRARIES))


def chosen(names: Sequence[str], available: Mapping[str, Pair]) -> dict[str, Pair]:
    """The named architectures, or all if none is named; raises InputError for one that a library lacks."""
    for name in names:
        if name not in available:
            close = difflib.get_close_matches(name, available) or sorted(available)
            raise InputError(
                f"zoo {name}: not an architecture that {' and '.join(LIBRARIES.values())} share; "
                f"choose from {', '.join(close)}"
            )
    return {name: available[name] for name in (dict.fromkeys(names) or available)}


def _names_in(side: str, python: str | None) -> list[str]:
    interpreter_versions(python or sys.executable, side)
    with SideProcess(side, python=python) as process:
        try:
            return list(process.call(library_names, library=LIBRARIES[side])["names"])
        except ChildError as error:
            command = " (pip install 'twinalign[zoo]')" if side == "ref" else ""
            raise InputError(
                f"{python or sys.executable} has no {LIBRARIES[side]} ({error.reason}); install it there{command}, or "
                f"name an interpreter that has it with --{side}-python"
            ) from None


def library_names(library: str) -> dict[str, list[str]]:
    """Names of the architectures in a library; called in a process that may import it."""
    module = importlib.import_module(library)
    if hasattr(module, "list_models"):
        return {"names": list(module.list_models(module))}
    return {"names": [name for name in dir(module) if name[:1].islower() and callable(getattr(module, name))]}
