"""The files of a port: the package that was drafted, its shims, its case, and the list of changes."""

import ast
import importlib.resources
import keyword
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from twinalign.drafting.rewriting import Change, rewritten
from twinalign.drafting.selection import Selection
from twinalign.errors import InputError

SHIMS = "shims"
_BUILD = "build"


def package_name(out: Path) -> str:
    """Name of the port's package: that of its folder; raises InputError if no module can have it."""
    if not out.name.isidentifier() or keyword.iskeyword(out.name):
        raise InputError(f"--out {out}: the folder's name is the port's package, and {out.name!r} is no Python name")
    return out.name


def in_torch(selection: Selection) -> tuple[dict[str, str], list[Change], set[str]]:
    """The package before the draft, with the rules applied; what they changed; the shims it uses."""
    files, changes, shims = {}, [], set()
    for path, source in {**selection.files(), f"{_BUILD}.py": _build_source(selection)}.items():
        dots = "." * (1 + path.count("/"))
        text, changed, used = rewritten(path, source, f"{dots}{SHIMS}")
        files[path] = text
        changes += changed
        shims |= used
    return files, changes, shims


def _build_source(selection: Selection) -> str:
    root = selection.root
    lines = ['"""Builds the model with the arguments that the reference was built with."""', ""]
    imported = []
    for module, name in root["imports"]:
        top = name.partition(".")[0]
        home = selection.resolve(module, top)
        if home is None:
            imported.append(f"from {module} import {top}")
        else:
            imported.append(f"from .{selection.home_of(home[0])} import {top}")
    arguments = "".join(f"\n        {argument}," for argument in root["arguments"])
    call = f"{root['calls']}({arguments}\n    )" if arguments else f"{root['calls']}()"
    if "torch." in arguments:
        imported.insert(0, "import torch")
    lines += [*sorted(set(imported)), "", "", "def build_model():", f"    return {call}", ""]
    return "\n".join(lines)


def shims_source(names: Iterable[str]) -> str:
    """Of the shims those that are used, and nothing if none is."""
    text = importlib.resources.files("twinalign.drafting").joinpath("shims.txt").read_text(encoding="utf-8")
    tree = ast.parse(text)
    lines = text.splitlines()
    wanted = set(names)
    parts = [
        "\n".join(lines[node.lineno - 1 : node.end_lineno])
        for node in tree.body
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name in wanted
    ]
    head = "\n".join(lines[: (tree.body[1].end_lineno or 0)])
    return "\n\n\n".join([head, *parts]) + "\n"


def leftovers(files: Mapping[str, str]) -> list[str]:
    """Places where names of torch are left, as `file:line: what`."""
    found = []
    for path, text in files.items():
        try:
            tree = ast.parse(text)
        except SyntaxError as error:
            found.append(f"{path}:{error.lineno}: {error.msg}: {(error.text or '').strip()}")
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and re.match(r"torch\.", ast.unparse(node)):
                found.append(f"{path}:{node.lineno}: {ast.unparse(node)}")
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                if any(name.partition(".")[0] in ("torch", "timm", "transformers", "torchvision") for name in names):
                    found.append(f"{path}:{node.lineno}: {ast.unparse(node)}")
    return sorted(set(found))


def case_source(name: str, reference: str, inputs: Sequence[Sequence[Any]]) -> str:
    """A case that builds both models and trains them for two steps."""
    module, _, call = reference.partition(":")
    given = []
    for label, shape, dtype in inputs:
        whole = f"rng.standard_normal({tuple(shape)}).astype(\"{dtype}\")"
        integers = f"rng.integers(0, 8, {tuple(shape)}).astype(\"{dtype}\")"
        given.append(f'            "{label}": {whole if dtype.startswith("float") else integers},')
    return f'''"""The port of {reference} and what it was made from, compared by `twinalign run {"case.py"}`."""

import numpy as np

import twinalign


class Port(twinalign.Case):
    """Forward in training mode, and two steps of SGD on the mean of squares of all outputs."""

    name = "{name}"
    train_mode = True
    steps = 2

    def reference(self):
        from twinalign.conversion.model_factory import load_factory

        factory, arguments = load_factory({f"{module}:{call}"!r})
        return factory(**arguments)

    def reproduced(self):
        from {name}.{_BUILD} import build_model

        return build_model()

    def inputs(self, rng: np.random.Generator):
        return {{
{chr(10).join(given)}
        }}

    def loss(self, outputs, inputs, framework):
        found = outputs if hasattr(outputs, "shape") else next(iter(_tensors(outputs)))
        return (found * found).mean()

    def optimizer(self, parameters, framework):
        if framework == "torch":
            import torch

            return torch.optim.SGD(parameters, lr=0.01)
        import paddle

        return paddle.optimizer.SGD(0.01, parameters=parameters)


def _tensors(value):
    if hasattr(value, "shape"):
        yield value
    for item in value.values() if hasattr(value, "values") else value if isinstance(value, (list, tuple)) else ():
        yield from _tensors(item)
'''


def write(out: Path, files: Mapping[str, str]) -> None:
    """Write all files of a port beside its place, then rename; what stood there is replaced."""
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".partial", dir=out.parent))
    try:
        for path, text in files.items():
            (beside / path).parent.mkdir(parents=True, exist_ok=True)
            (beside / path).write_text(text, encoding="utf-8")
        if out.exists():
            shutil.rmtree(out)
        os.replace(beside, out)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
