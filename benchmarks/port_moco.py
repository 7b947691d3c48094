"""Port `moco_ref` with `twinalign port`, and write where the drafts differ from `moco_paddle`: docs/port-of-moco.md.

python benchmarks/port_moco.py
"""

from __future__ import annotations

import difflib
import os
import sys
import tempfile
import time
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
HEAD = """# MoCo v3 by `twinalign port`

Written by `python benchmarks/port_moco.py`, on a CPU. `moco_ref`, the torch twin, is drafted and proven as any other
model: the loss of two views with the momentum encoder's update, in training mode, and two steps of SGD. Nobody's hand
is in it.

| encoder | verdict | stages | changes beside the draft | edits | seconds |
| --- | --- | --- | ---: | ---: | ---: |
"""
BETWEEN = """
Each file of the draft beside that of `moco_paddle`, which people wrote, without docstrings, annotations, comments and
blank lines:

| file | lines in both | in the draft alone | in `moco_paddle` alone |
| --- | ---: | ---: | ---: |
"""
WHY = """
What the differences are:

- The draft holds what the model needs: no options that were not given, no code that never ran.
- Layers of the draft come from its `shims.py`, with torch's names and keywords. `moco_paddle` writes paddle's own
  (`nn.Layer`, `nn.Linear`), and has layers of its own where paddle differs: batch norm, whose running variance is
  biased in paddle.
- The draft keeps paddle's torch-compatible spelling (`dim`, `requires_grad`, `nn.Module`); `moco_paddle` has `axis` and
  `stop_gradient`.
- Across ranks the draft has what ran here: one rank.
"""


def code_lines(path: Path) -> list[str]:
    """Lines of code without docstrings, annotations, comments and blank lines, as Python writes them."""
    import ast

    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Module)):
            if ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
            if isinstance(node, ast.FunctionDef):
                node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
    return [line for line in ast.unparse(ast.fix_missing_locations(tree)).splitlines() if line.strip()]


def compared(draft: Path) -> Iterator[tuple[str, int, int, int]]:
    """File → lines in both, in the draft alone, in `moco_paddle` alone."""
    for path in sorted(draft.rglob("*.py")):
        name = path.relative_to(draft)
        mine, other = code_lines(path), ROOT / "moco_paddle" / name
        if not mine or not other.exists():
            continue
        theirs = code_lines(other)
        equal = sum(block.size for block in difflib.SequenceMatcher(None, mine, theirs, False).get_matching_blocks())
        yield str(name), equal, len(mine) - equal, len(theirs) - equal


def main() -> None:
    """Port both encoders, and write the page."""
    rows, files = [], []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.path.insert(0, str(ROOT))
        os.environ["PYTHONPATH"] = str(ROOT)
        Path("pretraining.py").write_text(MODEL, encoding="utf-8")
        for name, reference in ENCODERS.items():
            started = time.monotonic()
            inputs = ["x1:4,3,32,32:float32", "x2:4,3,32,32:float32"]
            made = twinalign.port(f"pretraining.py:{reference}", inputs, out=f"drafted_{name}")
            stages = ", ".join(f"{stage} {verdict}" for stage, verdict in made.stages.items())
            seconds = time.monotonic() - started
            rows.append(
                f"| {name} | {made.verdict} | {stages} | {len(made.changes)} | {len(made.edits)} | {seconds:.0f} |\n"
            )
            print(rows[-1], made.left, flush=True)
            drafted = Path(f"drafted_{name}") / f"drafted_{name}" / "moco_ref"
            files += [
                f"| `{file}` ({name}) | {both} | {draft} | {own} |\n" for file, both, draft, own in compared(drafted)
            ]
        os.chdir(ROOT)
    PAGE.write_text(HEAD + "".join(rows) + BETWEEN + "".join(files) + WHY, encoding="utf-8")


if __name__ == "__main__":
    main()
