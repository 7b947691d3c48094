"""Which edits `fix` keeps: runs are played by a table of what each text of the port makes wrong; one test is real."""

from __future__ import annotations

import itertools
import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from twinalign.errors import InputError, SideCrashError
from twinalign.files.recordings import Recording
from twinalign.recorder.run_settings import RunSettings
from twinalign.repair import fix as fix_module
from twinalign.repair import trials
from twinalign.repair.candidates import AS_CONVERTED
from twinalign.repair.fix import fix
from twinalign.search.faults import LATER_STEP

pytestmark = pytest.mark.usefixtures("kept_processes")

PORT = "a = 1  # kept\nb = 1\n"
BAD = {"a": "a = 1", "b": "b = 1"}
"""Layer -> the text that makes it wrong."""


class Played:
    """Stands for `run`: a layer is wrong as long as its bad text is in the port; its edits are those of `edits`."""

    def __init__(self, port: Path) -> None:
        self.port, self.edits = port, {"a": ["a = 2"], "b": ["b = 2"]}
        self.causes: dict[str, str] = {}
        self.of_reference: dict[str, list[tuple[int, str, str]]] = {}
        self.of_case: dict[str, list[tuple[int, str, str]]] = {}
        self.lines: list[list] = []
        self.renamed: list[tuple[str, str, str]] = []
        self.breaks: dict[str, str] = {}
        self.crashes: list[str] = []
        self.reference = lambda text: 0.0
        self.seen: list[str] = []
        self.is_wrong = lambda text, bad: bad in text
        self.later: dict[str, dict[str, object]] = {}
        """Layer -> what its fault says where it is named after others; its tensors are wrong all the while."""

    def __call__(self, settings, progress, kept, report):
        text = settings.sources.get(str(self.port), PORT)
        self.seen.append(text)
        settings.out.mkdir(parents=True, exist_ok=True)
        if any(all(part in text for part in crash.split("+")) for crash in self.crashes):
            raise SideCrashError("the side is dead")
        seed = int(settings.options.get("seed", 0))
        array = np.array([self.reference(text) + seed], np.float32)
        Recording({"output": array}, {}).save(settings.out / "forward_ref.npy")
        wrong = [layer for layer, bad in BAD.items() if self.is_wrong(text, bad)]
        causes = {layer: cause for made, layer, cause in self.renamed if made in text}
        wrong += [layer for layer in causes if layer not in wrong]
        wrong += [layer for made, layer in self.breaks.items() if made in text and (seed or layer != "drawn")]
        faults = [
            SimpleNamespace(to_json=lambda layer=layer: self._fault(layer, causes.get(layer)), evidence={})
            for layer in wrong
        ]
        verdict = "diverged" if wrong else "aligned"
        named = dict.fromkeys([*wrong, *(layer for layer in self.later if BAD[layer] in text)])
        tensors = [SimpleNamespace(name=layer, verdict="diverged", fp64_rel=1.0) for layer in named]
        stages = {"forward": SimpleNamespace(verdict=verdict, tensors=tensors)}
        located = SimpleNamespace(faults=faults if settings.locate else [])
        return SimpleNamespace(case="Played", verdict=verdict, stages=stages, located=located, initial=None)

    def _fault(self, layer, cause=None):
        line = list(BAD).index(layer) + 1 if layer in BAD else 0
        found = [
            {"file": str(self.port), "line": line, "span": [line, 0, line, 5], "before": BAD[layer], "after": after}
            for after in self.edits.get(layer, [])
        ]
        cause = self.causes.get(layer, f"cause_{layer}") if cause is None else cause
        explanation = {"id": cause, "text": f"{layer} is wrong", "evidence": {"lines_of_port": self.lines}}
        explanation = explanation if cause else None
        common = {"paddle_layer": layer, "phase": "forward", "explanation": explanation}
        edits = {"edit": (found or [None])[0], "further_edits": found[1:]}
        return {**common, **edits, **self._of_sources(layer), **self.later.get(layer, {})}

    def _of_sources(self, layer):
        """Edits of the second file that the reference's source and the case suggest."""
        edits = {
            name: [
                {"file": str(self.port), "line": line, "span": [line, 0, line, 5], "before": before, "after": after}
                for line, before, after in found.get(layer, ())
            ]
            for name, found in (("reference_edits", self.of_reference), ("case_edits", self.of_case))
        }
        return {**edits, "evidence": {}}


@pytest.fixture
def played(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    port = tmp_path / "port.py"
    port.write_text(PORT)
    playing = Played(port)
    monkeypatch.setattr(trials, "run", playing)
    return playing


def mend(played, write=False):
    return fix(RunSettings("case.py", out=played.port.parent / "result"), write=write)


def test_edits_are_tried_at_once_and_nothing_is_written(played):
    found = mend(played)
    assert (found.verdict, len(found.edits), found.left, found.notes, found.written) == ("aligned", 2, [], [], [])
    assert len(played.seen) == 3  # as it is, with both edits, and on a second draw
    assert played.port.read_text() == PORT
    assert sorted(path.name for path in (played.port.parent / "result").iterdir()) == ["fix.patch"]


def test_write_changes_the_file_and_keeps_comments(played):
    played.port.chmod(0o640)
    found = mend(played, write=True)
    assert found.written == [str(played.port)]
    assert played.port.read_text() == "a = 2  # kept\nb = 2\n"
    assert played.port.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in played.port.parent.iterdir()) == ["port.py", "result"]


def test_edits_that_fail_together_are_tried_alone(played):
    played.edits["b"] = ["b = 3"]
    played.crashes = ["b = 3"]
    found = mend(played)
    assert [edit["after"] for edit in found.edits] == ["a = 2"]
    assert (found.verdict, [fault["paddle_layer"] for fault in found.left]) == ("diverged", ["b"])


def test_edits_that_helped_are_taken_at_once_where_others_did_not(played):
    played.edits["b"] = ["b = 1 "]
    found = mend(played)
    assert [edit["after"] for edit in found.edits] == ["a = 2"]
    # As it is, with both edits, with the one that helped, with the other again, and on a second draw.
    assert len([text for text, _ in itertools.groupby(played.seen)]) == 5


def test_the_next_edit_follows_one_that_mends_nothing(played):
    played.edits["a"] = ["a = 1 ", "a = 2"]
    assert [edit["after"] for edit in mend(played).edits if edit["layer"] == "a"] == ["a = 2"]


@pytest.fixture
def two_lines(played, monkeypatch):
    """One fault, which is gone once both lines are right; a third one changes nothing."""
    port = PORT + "c = 1\n"
    played.port.write_text(port)
    monkeypatch.setitem(globals(), "PORT", port)
    monkeypatch.setitem(globals(), "BAD", {"a": ""})
    played.is_wrong = lambda text, bad: "a = 2" not in text or "b = 2" not in text
    played.edits = {}
    played.of_reference = {"a": [(1, "a = 1", "a = 2"), (3, "c = 1", "c = 2"), (2, "b = 1", "b = 2")]}
    return played


def test_lines_that_are_wrong_together_are_mended_without_what_is_not_needed(two_lines):
    found = mend(two_lines, write=True)
    assert (found.verdict, [edit["after"] for edit in found.edits]) == ("aligned", ["a = 2", "b = 2"])
    assert two_lines.port.read_text() == "a = 2  # kept\nb = 2\nc = 1\n"


def test_lines_that_are_proven_to_be_wrong_together_are_tried_first(two_lines):
    two_lines.lines = [["port.py", 1, 1], ["port.py", 2, 2]]
    found = mend(two_lines)
    assert [edit["after"] for edit in found.edits] == ["a = 2", "b = 2"]
    assert len(two_lines.seen) == 3  # as it is, with both, and on a second draw


def test_an_edit_of_the_case_is_tried_and_says_why(played):
    played.edits, played.of_case = {"b": ["b = 2"]}, {"a": [(1, "a = 1", "a = 2")]}
    causes = {edit["after"]: edit["cause"] for edit in mend(played).edits}
    assert causes == {"a = 2": AS_CONVERTED, "b = 2": "b is wrong [cause_b]"}


def test_edits_are_tried_for_a_time(played, monkeypatch):
    monkeypatch.setattr(fix_module, "_LEAST_SECONDS", -1e9)
    monkeypatch.setattr(fix_module, "_TIMES_OF_SEARCH", -1e9)
    found = mend(played)
    assert (found.edits, len(found.left)) == ([], 2)
    assert found.notes == ["not all edits that may help were tried in 0 s"]


def test_what_the_reference_recorded_stands_until_a_file_of_its_own_is_edited(played, monkeypatch):
    imported = {}
    monkeypatch.setattr(trials, "read_metadata", lambda path: {"code_sha256": imported})
    kept = []

    def noting(settings, *given, **named):
        kept.append((settings.out / "forward_ref.npy").exists())
        (settings.out / "forward_paddle.npy").unlink(missing_ok=True)
        found = played(settings, *given, **named)
        (settings.out / "forward_ref.json").write_text("{}")
        return found

    monkeypatch.setattr(trials, "run", noting)
    mend(played)
    assert kept == [False, True, False]  # a second draw has other inputs
    kept.clear()
    imported[str(played.port)] = ""
    mend(played)
    assert kept == [False, False, False]


def test_an_edit_that_brings_another_fault_is_not_taken(played):
    played.breaks = {"a = 2": "other"}
    assert [edit["layer"] for edit in mend(played).edits] == ["b"]


@pytest.mark.parametrize(
    "shown",
    [{"evidence": {LATER_STEP: 1}}, {"phase": "train"}],
    ids=["inputs of a later step", "training"],
)
def test_what_is_looked_at_only_once_nothing_else_is_wrong_was_there_before(shown, played):
    played.is_wrong = lambda text, bad: bad in text and (bad == "a = 1" or "a = 2" in text)
    played.later = {"b": shown}
    found = mend(played)
    assert (found.verdict, [edit["after"] for edit in found.edits]) == ("aligned", ["a = 2", "b = 2"])


@pytest.mark.parametrize(
    ("before", "after", "taken"),
    [("one", "one", False), ("one", "other", False), ("one", "", False), ("one+other", "other", True)],
    ids=["another value", "another cause", "no cause known", "one of two is left"],
)
def test_a_fault_is_not_gone_for_looking_otherwise(before, after, taken, played):
    played.causes = {"a": before}
    played.renamed = [("a = 2", "a", after)]
    assert ("a = 2" in [edit["after"] for edit in mend(played).edits]) == taken


def test_an_edit_that_changes_the_reference_is_not_taken(played):
    played.reference = lambda text: float("a = 2" in text)
    found = mend(played)
    assert [edit["layer"] for edit in found.edits] == ["b"]
    assert [fault["paddle_layer"] for fault in found.left] == ["a"]


def test_edits_that_fail_on_a_second_draw_are_not_taken(played):
    played.breaks = {"a = 2": "drawn"}
    found = mend(played, write=True)
    assert (found.edits, found.patch, found.written, found.patch_file) == ([], "", [], None)
    assert (found.verdict, len(found.left)) == ("diverged", 2)
    assert found.notes == ["the edits do not hold on a second draw of inputs, so none is taken"]
    assert played.port.read_text() == PORT


def test_inputs_without_a_seed_are_said(played, monkeypatch):
    monkeypatch.setattr(fix_module, "FURTHER_SEED", 0)
    said = "the case's inputs and weights do not depend on its seed: proven on one draw of inputs"
    assert mend(played).notes == [said]


def test_a_file_that_changed_meanwhile_is_not_written(played, monkeypatch):
    later = "# another line\n" + PORT

    def change(side, text):
        if text.startswith("the patched port"):
            played.port.write_text(later)

    with pytest.raises(InputError, match=r"port\.py: changed while the edits were proven; run twinalign fix again$"):
        fix(RunSettings("case.py", out=played.port.parent / "result"), change, write=True)
    assert played.port.read_text() == later
    assert sorted(path.name for path in played.port.parent.iterdir()) == ["port.py", "result"]


def test_an_old_patch_goes_where_nothing_is_wrong(played, monkeypatch):
    monkeypatch.setitem(BAD, "a", "never")
    monkeypatch.setitem(BAD, "b", "never")
    old = played.port.parent / "result" / "fix.patch"
    old.parent.mkdir()
    old.write_text("old")
    assert (mend(played, write=True).patch, old.exists()) == ("", False)


REFERENCE = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.bn = nn.BatchNorm2d(8, eps=1e-3)
        self.act = nn.SiLU()
        self.norm = nn.LayerNorm(8, eps=1e-6)
        self.rise = nn.Linear(8, 16)
        self.gelu = nn.GELU(approximate="tanh")

    def forward(self, x):
        x = self.act(self.bn(self.stem(x))).flatten(2).mean(2)
        return self.gelu(self.rise(self.norm(x)))
"""
FAULTY = """
from paddle import nn


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2D(3, 8, 3, padding=1)
        self.bn = nn.BatchNorm2D(8)
        self.act = nn.ReLU()  # cheap
        self.norm = nn.LayerNorm(8)
        self.rise = nn.Linear(8, 16)
        self.gelu = nn.GELU()

    def forward(self, x):
        x = self.act(self.bn(self.stem(x))).flatten(2).mean(2)
        return self.gelu(self.rise(self.norm(x)))
"""
CASE = """
import numpy as np

from twinalign import Case


class Port(Case):
    def reference(self):
        from reference import Net

        return Net()

    def reproduced(self):
        from port import Net

        return Net()

    def inputs(self, rng):
        return {"x": rng.standard_normal((4, 3, 8, 8), dtype=np.float32)}
"""


DATA = """
class Scale:
    def __init__(self, by):
        self.by = by

    def __call__(self, image):
        return image / self.by


class Shift:
    def __init__(self, by):
        self.by = by

    def __call__(self, image):
        return image - self.by


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image):
        for transform in self.transforms:
            image = transform(image)
        return image


class Pictures:
    def __init__(self):
        self.images = np.arange(24, dtype="float32").reshape(6, 2, 2)
        self.transform = Compose([Scale(4.0), Shift(0.5)])

    def __getitem__(self, index):
        image = self.images[index]
        return self.transform(image) if self.transform else image


def net():
    return nn.Linear(4, 128)
"""
OTHER_CASE = """
import numpy as np

from twinalign import Case


class Port(Case):
    initial = True
    splits = ("val",)
    data_samples = 2

    def reference(self):
        from reference import net

        return net()

    def reproduced(self):
        from port import net

        return net()

    def inputs(self, rng):
        return {"x": rng.standard_normal((4, 4), dtype=np.float32)}

    def dataset(self, framework, split):
        if framework == "torch":
            from reference import Pictures

            return Pictures()
        from port import Pictures

        return Pictures()
"""


@pytest.mark.slow
def test_steps_of_data_and_initialisers_are_mended(twinalign, tmp_path):
    reference = "import numpy as np\nfrom torch import nn\n" + DATA
    right = "import numpy as np\nfrom paddle import nn\n" + DATA
    faulty = right.replace("Scale(4.0), Shift(0.5)", "Shift(0.5), Scale(4.0)")
    for name, text in (("reference", reference), ("port", faulty), ("case", OTHER_CASE)):
        (tmp_path / f"{name}.py").write_text(text)
    ran = twinalign("fix", "case.py", "--write")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    mended = (tmp_path / "port.py").read_text()
    assert "Compose([Scale(4.0), Shift(0.5)])" in mended
    started = "KaimingUniform(negative_slope=5**0.5, nonlinearity='leaky_relu')"
    bound = "bias_attr=nn.initializer.Uniform(-0.5, 0.5)"
    assert f"nn.Linear(4, 128, weight_attr=nn.initializer.{started}, {bound})" in mended.replace(" ** ", "**")


@pytest.mark.slow
def test_four_faults_are_mended_by_one_command(twinalign, tmp_path):
    for name, text in (("reference", REFERENCE), ("port", FAULTY), ("case", CASE)):
        (tmp_path / f"{name}.py").write_text(text)
    ran = twinalign("fix", "case.py", "--json", "fix.json")
    assert ran.returncode == 0, ran.stderr
    assert "Port: aligned with the patch: 4 edits proven\npatch in result/fix.patch\n" in ran.stdout
    assert (tmp_path / "port.py").read_text() == FAULTY
    found = json.loads((tmp_path / "fix.json").read_text())
    assert {(edit["layer"], edit["after"]) for edit in found["edits"]} == {
        ("bn", "nn.BatchNorm2D(8, epsilon=0.001)"),
        ("act", "nn.Silu()"),
        ("norm", "nn.LayerNorm(8, epsilon=1e-6)"),
        ("gelu", "nn.GELU(approximate=True)"),
    }
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    subprocess.run(["git", "apply", "--check", "result/fix.patch"], cwd=tmp_path, check=True)

    ran = twinalign("fix", "case.py", "--write")
    assert "4 edits proven, 1 file written\n" in ran.stdout
    mended = (tmp_path / "port.py").read_text()
    assert "self.act = nn.Silu()  # cheap\n" in mended
    assert [(tmp_path / f"{name}.py").read_text() for name in ("reference", "case")] == [REFERENCE, CASE]

    ran = twinalign("fix", "case.py", "--write")
    assert (ran.returncode, ran.stdout.strip()) == (0, "Port: nothing is wrong, nothing was written")
    assert (tmp_path / "port.py").read_text() == mended


GATED_REFERENCE = """
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.second = nn.Linear(6, 6)
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        gate = F.gelu(self.first(x)) * 0.5
        x = gate * self.second(x) + x
        return self.head(x.flatten(1))
"""
GATED_PORT = """
from paddle import nn
from paddle.nn import functional as F


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(6, 6)
        self.gate = nn.Linear(6, 6)
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        gate = F.gelu(self.up(x)) * 0.5
        x = gate * self.gate(x) + x
        return self.head(x.flatten(1))
"""
GATED_CASE = CASE.replace(
    "class Port(Case):\n", 'class Port(Case):\n    rename = {"first": "up", "second": "gate"}\n\n'
).replace("(4, 3, 8, 8)", "(4, 6)")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "wrong"),
    [
        ("case", {'"first": "up", "second": "gate"': '"first": "gate", "second": "up"'}),
        ("case", {'"first"': '"frist"'}),
        ("port", {"* 0.5": "* 0.25", "self.gate(x) + x": "self.gate(x) - x"}),
    ],
    ids=["pairs exchanged", "a name that does not exist", "two lines of one function"],
)
def test_case_and_port_become_what_they_were(file, wrong, twinalign, tmp_path):
    right = {"reference": GATED_REFERENCE, "port": GATED_PORT, "case": GATED_CASE}
    for name, text in right.items():
        (tmp_path / f"{name}.py").write_text(text)
    spoilt = right[file]
    for before, after in wrong.items():
        assert spoilt.count(before) == 1
        spoilt = spoilt.replace(before, after)
    (tmp_path / f"{file}.py").write_text(spoilt)
    ran = twinalign("fix", "case.py", "--write")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert {name: (tmp_path / f"{name}.py").read_text() for name in right} == right
