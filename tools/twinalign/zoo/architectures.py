"""Which architectures both zoos have, and how each side's is built; imports no framework."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import difflib
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence

from twinalign.errors import InputError
from twinalign.freshness import interpreter_versions
from twinalign.recorder.process import borrowed_package

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
    """How both sides build an architecture of torchvision's name."""
    if name.startswith("vgg") and name.endswith("_bn"):  # an argument in paddle
        return Pair(name, f"{name.removesuffix('_bn')}(batch_norm=True)")
    if name == "inception_v3":  # the auxiliary classifier is torchvision's alone
        return Pair(f"{name}(aux_logits=False, init_weights=False)", name)
    return Pair(name, name)


def shared(torch_names: Collection[str], paddle_names: Collection[str]) -> dict[str, Pair]:
    """torchvision's name → pair, of every architecture that is in both lists, in alphabetical order."""
    pairs = {name: pair_of(name) for name in sorted(torch_names)}
    return {name: pair for name, pair in pairs.items() if pair.paddle.partition("(")[0] in paddle_names}


def installed(pythons: Mapping[str, str | None]) -> dict[str, Pair]:
    """The shared architectures of what is installed, each library asked in a process of its own.

    Args:
        pythons: side → interpreter that has its library; None: this one.

    Raises:
        InputError: an interpreter that does not start, or has no such library.
    """
    with concurrent.futures.ThreadPoolExecutor(len(LIBRARIES)) as pool:  # an import takes seconds
        return shared(*pool.map(lambda side: _names_in(side, pythons.get(side)), LIBRARIES))


def chosen(names: Sequence[str], available: Mapping[str, Pair]) -> dict[str, Pair]:
    """The named architectures, all where none is named; raises InputError for one that not both libraries have."""
    for name in names:
        if name not in available:
            close = difflib.get_close_matches(name, available) or sorted(available)
            raise InputError(
                f"zoo {name}: not an architecture that {' and '.join(LIBRARIES.values())} share; there is "
                f"{', '.join(close)}"
            )
    return {name: available[name] for name in (dict.fromkeys(names) or available)}


def _names_in(side: str, python: str | None) -> list[str]:
    interpreter_versions(python or sys.executable, side)
    with borrowed_package(python) as environment:
        finished = subprocess.run(
            [python or sys.executable, "-m", __name__, LIBRARIES[side]], capture_output=True, text=True, env=environment
        )
    try:
        found: list[str] = json.loads(finished.stdout)
    except ValueError:
        last = (finished.stderr.strip().splitlines() or ["no output"])[-1]
        raise InputError(
            f"{python or sys.executable} has no {LIBRARIES[side]} ({last}); install it there, or name an interpreter "
            f"that has it with --{side}-python"
        ) from None
    return found


def _names_here(library: str) -> list[str]:
    module = importlib.import_module(library)
    if hasattr(module, "list_models"):
        return list(module.list_models(module))
    return [name for name in dir(module) if name[:1].islower() and callable(getattr(module, name))]


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # frameworks print at import; standard output is for the result alone
    json.dump(_names_here(sys.argv[1]), answers)
    answers.flush()
