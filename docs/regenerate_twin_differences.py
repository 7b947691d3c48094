"""Write docs/differences/: what the two twins differ in, file by file, without what is only spelled otherwise.

    python docs/regenerate_twin_differences.py [--check]

`--check` writes nothing, and fails where a page is stale or the twins are twins no longer: other files, definitions in
another order, a difference of meaning without a comment, an import that leads to the wrong package.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TORCH, PADDLE, COMMON = "moco_ref", "moco_paddle", "moco_common"
MARK = "# diff:"
FORBIDDEN = {
    TORCH: ("paddle", PADDLE, "twinalign"),
    PADDLE: ("torch", "torchvision", TORCH, "twinalign"),
    COMMON: ("torch", "torchvision", "paddle", TORCH, PADDLE, "twinalign"),
}
"""What a package does not import, anywhere in it."""
SPELLING: list[tuple[str, Any]] = [
    (r"\bmoco_ref\b", "moco_paddle"),
    (r"\btorchrun\b", "paddle.distributed.launch"),
    (r'"LOCAL_WORLD_SIZE"', '"PADDLE_LOCAL_SIZE"'),
    (r'"WORLD_SIZE"', '"PADDLE_TRAINERS_NUM"'),
    (r"\bfrom torch\.distributed import TCPStore\b", "from paddle.base.core import TCPStore"),
    (r"\btorch\.(?:optim)\b", "paddle.optimizer"),
    (r"\btorch\.autocast\(self\.device, ", "paddle.amp.auto_cast("),
    (r"\btorch\.equal\((.*)\):", r"bool(paddle.equal_all(\1)):"),
    (r"\btorch\.(?:from_numpy|tensor)\b", "paddle.to_tensor"),
    (r"\btorch\.cat\b", "paddle.concat"),
    (r"\btorch\.manual_seed\b", "paddle.seed"),
    (r"\btorch\b(?!'s (?:own defaults|names|layouts))", "paddle"),
    (r"\bnn\.Module\b", "nn.Layer"),
    (r"\bIterable\[nn\.Parameter\]", "Iterable[Tensor]"),
    (r"(Conv|BatchNorm|MaxPool)([12])d(?=[A-Z]|\b)", r"\1\2D"),
    (r"\b(\w+)\.requires_grad = False\b", r"\1.stop_gradient = True"),
    (r"\b(\w+)\.requires_grad = ", r"\1.stop_gradient = not "),
    (r"\b(\w+)\.requires_grad\b", r"not \1.stop_gradient"),
    (r"(\bnn\.\w+\([^()]*)\bbias=", r"\1bias_attr="),
    (r"\baffine=False", "weight_attr=False, bias_attr=False"),
    (r"\beps=", "epsilon="),
    (r"\bself\.eps\b", "self._epsilon"),
    (r"\blayer\.(stride|padding|dilation|groups)\b", r"layer._\1"),
    (r"\bdim=(?=-?\d[,)]|\(|axes)", "axis="),
    (r"\bregister_forward_hook\b", "register_forward_post_hook"),
    (r"\b(named_)?modules\(\)", r"\1sublayers(include_self=True)"),
    (
        r"\bnn\.init\.([a-z])(\w+)_\(parameter, (.*)\)",
        lambda m: f"nn.initializer.{m[1].upper()}{m[2]}({m[3]})(parameter)",
    ),
    (r"\.to\((?:\w+\.device, )?(\w+\.dtype|half_type)\)", r".astype(\1)"),
    (r"\.to\((?:parameter\.)?device\)", ""),
    (r"\.cpu\(\)\.numpy\(\)", ".numpy()"),
    (r", device=\w+\.device\)", ")"),
    (r", device=(None if like is None else like)\.device\)", r", place=\1.place)"),
    (r"\.copy_\(", ".set_value("),
    (r"\.load_state_dict\(", ".set_state_dict("),
    (r"\.transpose\(1, 2\)", ".transpose([0, 2, 1])"),
    (r"\.repeat\((\w+)\)", r".tile([\1])"),
    (r"\.gather\(1, (labels\[:, None\])\)", r".take_along_axis(\1, axis=1)"),
    (r"\.index_add_\(0, (.*), (\w+)\)", r".index_add_(\1, 0, \2)"),
    (r"\b(zeros|reshape|expand)\((?!\[)((?:[\w.*-]|\[[^]]*\])+(?:, (?:[\w.-]|\[[^]]*\])+)+)\)", r"\1([\2])"),
    (r"\b(\w+)\.new_zeros\((\w+(?:[^()]|\[\d\])*)\)", r"paddle.zeros([\2], dtype=\1.dtype)"),
    (r"\bx\.new_full\(\(1,\), x\.numel\(\) (.*)\)", r"paddle.full([1], x.size \1, dtype=x.dtype)"),
    (r"dtype=paddle\.(float\d\d)", r'dtype="\1"'),
]
"""What torch's twin writes and paddle's writes otherwise, without meaning another thing."""


def in_paddles_words(text: str) -> str:
    """Return torch's source with paddle's spelling."""
    for pattern, replacement in SPELLING:
        text = re.sub(pattern, replacement, text)
    return text


def modules(package: Path) -> list[str]:
    """Return the paths of a package's Python files, sorted."""
    return sorted(str(path.relative_to(package)) for path in package.rglob("*.py"))


def difference(root: Path, name: str) -> list[str]:
    """Return the header and the hunks of the unified difference of a pair; nothing where there is none."""
    ours = in_paddles_words((root / TORCH / name).read_text(encoding="utf-8")).splitlines(keepends=True)
    theirs = (root / PADDLE / name).read_text(encoding="utf-8").splitlines(keepends=True)
    lines = "".join(difflib.unified_diff(ours, theirs, f"{TORCH}/{name}", f"{PADDLE}/{name}", n=2))
    return re.split(r"(?m)^(?=@@ )", lines) if lines else []


def pages(root: Path) -> dict[str, str]:
    """Return the text of every page by its name, the index among them."""
    names = [name for name in modules(root / TORCH) if (root / PADDLE / name).is_file()]
    found = {f"{name.removesuffix('.py').replace('/', '.')}.diff": "".join(difference(root, name)) for name in names}
    found = {page: text for page, text in found.items() if text}
    rows = [
        f"| [{page.removesuffix('.diff')}]({page}) | {sum(line[0] in '+-' for line in text.splitlines()[2:])} |"
        for page, text in found.items()
    ]
    index = f"""# How the twins differ

Generated by `python docs/regenerate_twin_differences.py`. Each page compares a file of `{TORCH}` with the same file of
`{PADDLE}`, after a table of what is only spelled otherwise (`axis` for `dim`, `Layer` for `Module`). What is left is a
difference of meaning, and a `{MARK}` comment on paddle's side says why. The other {len(names) - len(rows)} files say
the same in both.

| file | lines |
| --- | ---: |
"""
    return {"README.md": index + "\n".join(rows) + "\n", **found}


def problems(root: Path) -> list[str]:
    """Return what keeps the twins from being twins, a line each."""
    found = [f"{name}: is in one twin only" for name in sorted({*modules(root / TORCH)} ^ {*modules(root / PADDLE)})]
    for name in sorted({*modules(root / TORCH)} & {*modules(root / PADDLE)}):
        found += [f"{name}: {problem}" for problem in (*misplaced(root, name), *unexplained(root, name))]
    for package in FORBIDDEN:
        for name in modules(root / package):
            found += [f"{package}/{name}: imports {wrong}" for wrong in wrong_imports(root, package, name)]
    return found


def misplaced(root: Path, name: str) -> Iterator[str]:
    """Give the definitions of a pair that are in both files, and in another order."""
    ours = list(definitions(in_paddles_words((root / TORCH / name).read_text(encoding="utf-8"))))
    theirs = list(definitions((root / PADDLE / name).read_text(encoding="utf-8")))
    first, second = ([each for each in one if each in other] for one, other in ((ours, theirs), (theirs, ours)))
    for own, other in zip(first, second, strict=True):
        if own != other:
            yield f"{own} stands where paddle's twin has {other}"
            return


def definitions(text: str) -> Iterator[str]:
    """Give the names of a file's functions, classes and methods in their order."""
    for node in ast.parse(text).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef))


def unexplained(root: Path, name: str) -> Iterator[str]:
    """Give the hunks of a pair, other than of imports, that no comment explains."""
    for hunk in difference(root, name)[1:]:
        place, *lines = hunk.splitlines()
        changed = [line[1:].strip() for line in lines if line[0] in "+-"]
        if MARK not in hunk and not all(re.match(r"(from|import) .*|$", line) for line in changed):
            yield f"{place} has no `{MARK}` comment: {next(filter(None, changed))}"


def wrong_imports(root: Path, package: str, name: str) -> Iterator[str]:
    """Give what a file imports and its package must not, at whatever depth."""
    tree = ast.parse((root / package / name).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            imported = [node.module or ""]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            imported = [each.value for each in node.args if isinstance(each, ast.Constant)]
        else:
            continue
        yield from (each for each in imported if str(each).partition(".")[0] in FORBIDDEN[package])


def stale(root: Path) -> list[str]:
    """Return the pages that are missing, out of date or too many, a line each."""
    folder, wanted = root / "docs" / "differences", pages(root)
    there = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()} if folder.is_dir() else {}
    names = sorted({*there, *wanted})
    return [f"docs/differences/{name}: is stale" for name in names if there.get(name) != wanted.get(name)]


def main() -> int:
    """Write the pages, or check them; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, fail where something is wrong")
    if parser.parse_args().check:
        wrong = [*problems(ROOT), *stale(ROOT)]
        print("\n".join(wrong), file=sys.stderr)
        return int(bool(wrong))
    folder, wanted = ROOT / "docs" / "differences", pages(ROOT)
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        if path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        (folder / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
