"""The files of a port: the package that was drafted, its shims, its case, and the list of changes."""

import ast
import importlib.resources
import inspect
import keyword
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from twinalign.drafting.chance import without_chance
from twinalign.drafting.module_source import names_in
from twinalign.drafting.parts import BUILD, ROLES, sample_image
from twinalign.drafting.rewriting import Change, rewritten
from twinalign.drafting.selected_files import files_of
from twinalign.drafting.selection import Selection
from twinalign.errors import InputError, writing
from twinalign.processes.guardian import temporary_folder
from twinalign.runs.scaffold import InputArray

SHIMS = "shims"
STEPS = 2
SCHEDULED_STEPS = 4
"""Optimizer steps of the proof; more where a schedule changes the rate."""
BATCHES = 4
"""Those that a training loop is run on."""
_SHIMS_DOCSTRING = '"""What this port needs of torch and paddle 3.3 has not, or has otherwise; each with its reason."""'


def package_name(out: Path) -> str:
    """Name of the port's package: that of its folder; raises InputError if no module can have it."""
    if not out.name.isidentifier() or keyword.iskeyword(out.name):
        raise InputError(f"--out {out}: the folder's name is the port's package, and {out.name!r} is no Python name")
    return out.name


def in_torch(selection: Selection) -> tuple[dict[str, str], list[Change], set[str]]:
    """The package before the draft, with the rules applied; what they changed; the shims it uses."""
    (sources, changes), files, shims = files_of(selection), {}, set()
    for path, source in {**sources, f"{BUILD}.py": build_source(selection)}.items():
        text, changed, used = rewritten(path, source, above(path))
        files[path] = text
        changes += changed
        shims |= used
    return files, changes, shims


def above(path: str) -> str:
    """The dots that lead from a module to the port's package."""
    return "." * (1 + path.count("/"))


def build_source(selection: Selection) -> str:
    """A module, still in torch: `build_model()` makes the model with the arguments that the reference had,
    `build_loss()` and the like make its parts.
    """
    imported = []
    for module, name in selection.named:
        top = name.partition(".")[0]
        home = selection.resolve(module, top)
        if home is None:
            imported.append(f"from {module} import {top}")
        else:
            imported.append(f"from .{selection.home_of(home[0])} import {top}")
    for module in selection.registering:
        folder, _, last = selection.home_of(module).rpartition(".")
        imported.append(f"from .{folder} import {last}")
    functions = "".join(_builder(kind, root) for kind, root in selection.roots.items())
    if "torch." in functions:
        imported.insert(0, "import torch")
    parts = " and its parts" if len(selection.roots) > 1 else ""
    head = f'"""Builds the model{parts} with the arguments that the reference was built with."""'
    return "\n".join([head, "", *sorted(set(imported)), functions])


def _builder(kind: str, root: Mapping[str, Any]) -> str:
    """The function of `build.py` that makes the model or a part."""
    given = {"optimizer": "parameters", "train": ", ".join(ROLES)}.get(kind, "")
    texts = ["parameters", *root["arguments"]] if kind == "optimizer" else root["arguments"]
    arguments = "".join(f"\n        {argument}," for argument in texts)
    call = f"{root['calls']}({arguments}\n    )" if arguments else f"{root['calls']}()"
    made = call if root.get("called", True) else root["calls"]
    return f"\n\ndef build_{kind}({given}):\n    return {made}\n"


def shims_source(names: Iterable[str]) -> str:
    """Of the shims those that are used, with what they name of each other and of the standard library."""
    files = importlib.resources.files("twinalign.drafting.shims").iterdir()
    text = "".join(file.read_text(encoding="utf-8") for file in sorted(files, key=str) if file.name.endswith(".txt"))
    lines = text.splitlines()
    nodes = {node.name: node for node in ast.parse(text).body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    wanted = set(names)
    while more := {name for one in wanted for name in _names_from_outside(nodes[one]) & set(nodes)} - wanted:
        wanted |= more
    parts = ["\n".join(lines[node.lineno - 1 : node.end_lineno]) for name, node in nodes.items() if name in wanted]
    used = {alias for name in wanted for alias in names_in(nodes[name])}
    library = [f"import {name}" for name in ("copy", "math", "re") if name in used]
    head = "\n".join([_SHIMS_DOCSTRING, "", *library, *([""] if library else []), "import paddle"])
    return "\n\n\n".join([head, *parts]) + "\n"


def _names_from_outside(node: ast.stmt) -> set[str]:
    """Names that a function or a class reads of its module."""
    if isinstance(node, ast.ClassDef):
        head = [*node.bases, *node.decorator_list, *(keyword.value for keyword in node.keywords)]
        return names_in(*head).union(*map(_names_from_outside, node.body))
    inside = list(ast.walk(node))
    own = {inner.id for inner in inside if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)}
    own |= {inner.name for inner in inside[1:] if isinstance(inner, ast.FunctionDef)}
    return names_in(node) - own - {inner.arg for inner in inside if isinstance(inner, ast.arg)}


def leftovers(files: Mapping[str, str], packages: Iterable[str]) -> list[str]:
    """Places where names of torch, or imports of the reference's `packages`, are left, as `file:line: what`."""
    packages = tuple(packages)
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
            elif isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and not node.level):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                if any(name.partition(".")[0] in ("torch", *packages) for name in names):
                    found.append(f"{path}:{node.lineno}: {ast.unparse(node)}")
    return sorted(set(found))


def case_source(
    name: str,
    reference: str,
    inputs: Sequence[InputArray],
    parts: Mapping[str, str],
    observed: Mapping[str, Any],
) -> str:
    """A case that builds both models and trains them for some steps; in eval mode if training draws numbers."""
    import jinja2

    taken, for_loss, by_name = observed["shares"]
    given = [f'{one}=inputs["{one}"]' if by_name else f'inputs["{one}"]' for one in for_loss]
    chance = inspect.getsource(without_chance).replace("layers: Iterable[Any], model: Any) -> Any", "layers, model)")
    environment = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined)
    template = importlib.resources.files("twinalign.drafting").joinpath("case.txt").read_text(encoding="utf-8")
    return environment.from_string(template).render(
        name=name,
        reference=repr(reference),
        inputs=inputs,
        parts=dict(parts),
        trains=not observed["draws"],
        steps=SCHEDULED_STEPS if observed["scheduled"] else STEPS,
        scheduled=observed["scheduled"],
        batches=BATCHES,
        taken=tuple(taken) if len(taken) < len(inputs) else (),
        for_loss="".join(f", {one}" for one in given),
        without_chance=chance.strip(),
        sample_image=inspect.getsource(sample_image).replace("index: int) -> Any", "index)").strip(),
    )


def licences(selection: Selection) -> list[Path]:
    """Licence files of the packages that sources are taken from."""
    folders = set()
    for name in selection.needed:
        path = Path(selection.modules[name])
        package = name.partition(".")[0]
        while path.name != package and path.parent != path:
            path = path.parent
        folders |= set(path.parent.glob(f"{package}-*.dist-info")) if path.name == package else set()
    return sorted(path for folder in folders for path in folder.rglob("LICEN[SC]E*") if path.is_file())


def write(out: Path, files: Mapping[str, str]) -> None:
    """Write all files of a port beside its place, then rename; what stood there is replaced."""
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(f".{out.name}.", out.parent) as beside, writing(out):
        for path, text in files.items():
            (beside / path).parent.mkdir(parents=True, exist_ok=True)
            (beside / path).write_text(text, encoding="utf-8")
        if out.exists():
            shutil.rmtree(out)
        os.replace(beside, out)
