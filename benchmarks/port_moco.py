"""Port `moco_ref` with `twinalign port`, and write where the drafts differ from `moco_paddle`: docs/port-of-moco.md.

    python benchmarks/port_moco.py [--work DIR]

WORK keeps the drafts; one that is there already is proven once more (`twinalign port --check`), not made anew.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import twinalign

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "port-of-moco.md"
MODEL = '''"""MoCo v3 as one model of two views."""

import torch

from moco_ref.models.moco import build_moco


class Pretraining(torch.nn.Module):
    """The loss of two views, with a momentum of 0.99."""

    def __init__(self, arch, **options):
        super().__init__()
        self.moco = build_moco(arch, dim=16, mlp_dim=32, **options)

    def forward(self, x1, x2):
        return self.moco(x1, x2, 0.99)
'''
ENCODERS = {
    "vit_small": 'Pretraining("vit_small", image_size=32)',
    "resnet50": 'Pretraining("resnet50")',
}
INPUTS = ("x1:4,3,32,32:float32", "x2:4,3,32,32:float32")
SPELLING = ((r"\bpaddle\.nn\.functional\.", "F."), (r"\bpaddle\.nn\.", "nn."), (r"\bpaddle\.Tensor\b", "Tensor"))
"""What the twin imports under a shorter name."""
HEAD = """# MoCo v3 by `twinalign port`

Written by `python benchmarks/port_moco.py`, on a CPU. `moco_ref`, the torch twin, is drafted with `--style native` and
proven as any other model: the loss of two views with the update of the momentum encoder, in training mode, and two
steps of SGD, in float32 and float64. Nobody's hand is in the drafts.

| encoder | verdict | stages |
| --- | --- | --- |
"""
BETWEEN = """
## Beside the twin that people wrote

Functions of the drafts beside those of `moco_paddle`, without docstrings, annotations and comments. *Left out* is what
the model does not call: the draft holds what the model needs.

| file | alike | otherwise | left out |
| --- | ---: | ---: | ---: |
"""
WHY = """
The kinds of difference:

- **Layers.** Where paddle's layer computes or starts otherwise, the draft has a layer of its `shims.py` with torch's
  names and arguments (`shims.BatchNorm1d`), or names torch's first weights beside paddle's layer
  (`**shims.first_weights()`). The twin has layers of its own, and sets first weights where it builds the model.
- **Parameters.** paddle counts running statistics among the parameters. The twin leaves them out of the momentum
  update by name; the draft's batch norm holds them as buffers.
- **Loss and attention.** The twin writes out what paddle's functions compute otherwise or slowly; the draft calls a
  shim.
- **Spelling.** Some of paddle's torch-compatible names stay in the draft (`requires_grad`, `load_state_dict`).

Lines with `-` are the draft's, lines with `+` the twin's.
"""


def functions(path: Path) -> dict[str, list[str]]:
    """Function, or `Class.method` → its lines as Python writes them; without those that are left out of a draft."""
    found: dict[str, list[str]] = {}

    def visit(node: ast.AST, within: str) -> None:
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.ClassDef):
                visit(inner, f"{within}{inner.name}.")
            elif isinstance(inner, ast.FunctionDef):
                text = _plain(inner)
                if "left out of the port" not in text:
                    found[f"{within}{inner.name}"] = text.splitlines()

    visit(ast.parse(path.read_text(encoding="utf-8")), "")
    return found


def _plain(function: ast.FunctionDef) -> str:
    if ast.get_docstring(function) is not None:
        function.body = function.body[1:] or [ast.Pass()]
    function.returns = None
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            node.annotation = None
    text = ast.unparse(ast.fix_missing_locations(function))
    for pattern, replacement in SPELLING:
        text = re.sub(pattern, replacement, text)
    return text


def compared(drafts: list[Path]) -> Iterator[tuple[str, int, list[str], int]]:
    """File, functions alike, the differences of the others, functions that no draft has."""
    twin = ROOT / "moco_paddle"
    for path in [*sorted((twin / "models").glob("*.py")), twin / "distributed.py"]:
        name = path.relative_to(twin)
        drafted: dict[str, list[str]] = {}
        for draft in drafts:
            if (draft / name).exists():
                drafted = functions(draft / name) | drafted
        twins = functions(path)
        both = [one for one in twins if one in drafted]
        differences = [
            "\n".join(list(difflib.unified_diff(drafted[one], twins[one], n=1, lineterm=""))[2:])
            for one in both
            if drafted[one] != twins[one]
        ]
        if both:
            yield str(name), len(both) - len(differences), differences, len(twins) - len(both)


def main() -> None:
    """Port both encoders, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=ROOT / "result" / "port-moco")
    work = parser.parse_args().work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    os.chdir(work)
    sys.path.insert(0, str(ROOT))
    os.environ["PYTHONPATH"] = str(ROOT)
    Path("pretraining.py").write_text(MODEL, encoding="utf-8")
    rows, drafts = [], []
    for name, reference in ENCODERS.items():
        out = Path(f"drafted_{name}")
        if out.exists():
            made = twinalign.check_port(out)
        else:
            made = twinalign.port(f"pretraining.py:{reference}", INPUTS, out=out, style="native")
        stages = ", ".join(f"{stage} {verdict}" for stage, verdict in made.stages.items())
        rows.append(f"| {name} | {made.verdict} | {stages} |\n")
        print(rows[-1], made.left, flush=True)
        drafts.append(out / out.name / "moco_ref")
    files, blocks = "", ""
    for file, alike, differences, left_out in compared(drafts):
        files += f"| `{file}` | {alike} | {len(differences)} | {left_out} |\n"
        if differences:
            blocks += f"\n## `{file}`\n\n```diff\n" + "\n".join(differences) + "\n```\n"
    PAGE.write_text(HEAD + "".join(rows) + BETWEEN + files + WHY + blocks, encoding="utf-8")


if __name__ == "__main__":
    main()
