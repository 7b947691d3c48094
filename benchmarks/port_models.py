"""Ports that `twinalign port` makes with nobody's hand in it: how many are proven, and whether the proof is right.

    python benchmarks/port_models.py [NAME …] [--native] [--python PYTHON] [--work DIR] [--lot N] [--limit SECONDS]
    python benchmarks/port_models.py [--native] --table

Architectures of torchvision, timm, transformers and diffusers, at small sizes. Each port that is called proven is
checked by a plain script in float64 that knows nothing of twinalign's verdict: both models on the same weights and a
fresh draw of inputs. `--lot N` draws N further ones from timm's families by lot (seed 0). WORK/results.json keeps
what was found; a model in it is not run again. `--again` runs the models that are named once more, after a mend, and
keeps both results. `--table` writes docs/port-zoo.md, `--native --table` docs/port-native.md. PYTHON has torch,
torchvision, timm, transformers, diffusers, paddle and PaConvert.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from port_references import references
from real_ports import called

ROOT = Path(__file__).resolve().parent.parent
TORCHVISION = (
    "alexnet densenet121 efficientnet_b0 efficientnet_v2_s googlenet inception_v3 maxvit_t mnasnet0_5 mobilenet_v2 "
    "mobilenet_v3_large mobilenet_v3_small regnet_x_400mf regnet_y_400mf resnet18 resnet50 resnext50_32x4d "
    "shufflenet_v2_x0_5 squeezenet1_1 swin_t swin_v2_t vgg11 vgg11_bn vit_b_32 wide_resnet50_2 convnext_tiny"
).split()
TIMM = (
    "beit_base_patch16_224 cait_xxs24_224 coat_tiny convmixer_768_32 convnext_atto crossvit_tiny_240 cspresnet50 "
    "deit_tiny_patch16_224 densenet121 dla34 dpn48b edgenext_xx_small efficientnet_b0 efficientformer_l1 fasternet_t0 "
    "fastvit_t8 focalnet_tiny_srf gcvit_xxtiny ghostnet_050 hrnet_w18_small inception_v4 inception_next_atto "
    "levit_128s maxvit_rmlp_pico_rw_256 mixer_s16_224 mixnet_s mnasnet_050 mobilenetv2_050 mobilenetv3_small_050 "
    "mobileone_s0 mobilevit_xxs mobilevitv2_050 mvitv2_tiny nest_tiny nextvit_small nfnet_l0 pit_ti_224 "
    "poolformer_s12 pvt_v2_b0 regnetx_002 repghostnet_050 repvgg_a0 resmlp_12_224 resnest14d resnet18 resnetv2_50 "
    "rexnet_100 selecsls42 seresnet18 skresnet18 starnet_s1 swin_tiny_patch4_window7_224 tinynet_e "
    "tiny_vit_5m_224 tnt_s_legacy_patch16_224 twins_pcpvt_small vgg11 visformer_tiny vit_tiny_patch16_224 xception41 "
    "xcit_nano_12_p16_224 volo_d1_224 sequencer2d_s hgnet_tiny"
).split()
SIZES = {"inception_v3": 299, "inception_v4": 299, "crossvit_tiny_240": 240, "maxvit_rmlp_pico_rw_256": 256}
FIXED = (
    "vit",
    "deit",
    "beit",
    "swin",
    "cait",
    "pit",
    "tnt",
    "xcit",
    "volo",
    "mixer",
    "resmlp",
    "maxvit",
    "coat",
    "levit",
    "nest",
    "gcvit",
    "mvit",
    "visformer",
    "sequencer",
    "tiny_vit",
    "efficientformer",
    "twins",
    "fastvit",
    "alexnet",
)
CHECK = r"""
import json, sys
import numpy as np
out, name, reference = sys.argv[1:4]
sys.path.insert(0, out)
import torch, paddle
import case as port
made = port.Port()
rng = np.random.default_rng(12345)
inputs = made.inputs(rng)
with np.load(f"{out}/result/weights/{made.name}_ref.npz") as stored:
    first = {key: stored[key] for key in stored.files}
with np.load(f"{out}/result/weights/{made.name}_paddle.npz") as stored:
    second = {key: stored[key] for key in stored.files}
torch.set_default_dtype(torch.float64)
mine = made.reference()
state = mine.state_dict()  # not load_state_dict, which asks MNASNet's weights for their version
for key in first.keys() & state.keys():
    state[key].copy_(torch.from_numpy(np.asarray(first[key])))
mine.double().eval()
torch.set_default_dtype(torch.float32)
other = made.reproduced()
whole = [
    (layer, key, buffer)
    for layer in other.sublayers(include_self=True)
    for key, buffer in layer._buffers.items()
    if buffer is not None and not buffer.is_floating_point()
]
for layer, key, _ in whole:  # Layer.to casts integers too
    layer._buffers[key] = None
other.to(dtype="float64")
for layer, key, buffer in whole:
    layer._buffers[key] = buffer
missing, unexpected = other.set_state_dict({
    key: paddle.to_tensor(value.astype("float64") if value.dtype.kind == "f" else value)
    for key, value in second.items()
})
other.eval()
def outputs(value):
    if value is None:
        return []
    if hasattr(value, "shape"):
        return [value]
    items = value.values() if hasattr(value, "values") else value
    return [leaf for item in items for leaf in outputs(item)]
with torch.no_grad(), paddle.no_grad():
    given = [np.asarray(array) for array in inputs.values()]
    def cast(array):
        return array.astype("float64") if array.dtype.kind == "f" else array
    paddle.set_default_dtype("float64")
    a = [leaf.numpy() for leaf in outputs(mine(*[torch.from_numpy(cast(array)) for array in given]))]
    b = [leaf.numpy() for leaf in outputs(other(*[paddle.to_tensor(cast(array)) for array in given]))]
largest = max(float(abs(x - y).max() / (abs(x).max() or 1)) for x, y in zip(a, b, strict=True))
print(json.dumps({"largest": largest, "missing": list(missing)}))
"""
ALONE = r"""
import sys
out, package, reference, size = sys.argv[1:5]
import subprocess
from pathlib import Path
from twinalign.drafting.observed_model import observe_model
from twinalign.drafting.package import build_source
from twinalign.drafting.selected_files import files_of
from twinalign.drafting.selection import Selection
selection = Selection(observe_model(reference, [["x", (2, 3, int(size), int(size)), "float32", None]]))
files = {**files_of(selection)[0], "build.py": build_source(selection)}
for path, text in files.items():
    file = Path(out) / "given" / package / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
code = "from paconvert.main import main; main()"
given, made = Path(out) / "given", Path(out) / "made"
subprocess.run([sys.executable, "-c", code, "-i", given, "-o", made], check=True, capture_output=True)
code = f'''
import paddle
from {package}.build import build_model
model = build_model()
model.eval()
model(paddle.randn([2, 3, {size}, {size}]))
print("it runs")
'''
ran = subprocess.run([sys.executable, "-c", code], cwd=made, capture_output=True, text=True)
lines = (ran.stdout + ran.stderr).strip().splitlines()
print("it runs" if ran.returncode == 0 else lines[-1])
"""


def models() -> dict[str, str]:
    """Name → what builds it."""
    found = {f"torchvision/{name}": f"torchvision.models:{name}" for name in TORCHVISION}
    found |= {f"timm/{name}": f'timm:create_model("{name}")' for name in TIMM}
    return found | {name: reference for name, (reference, _) in references().items()}


LOT = r"""
import json, random, sys
import timm, torch
known = set(sys.argv[1].split())
rng = random.Random(0)
rounds = [{}, {}]
for module in sorted(timm.list_modules()):
    names = [name for name in timm.list_models(module=module) if name not in known]
    rng.shuffle(names)
    open_rounds = list(rounds)
    for name in names:
        try:
            with torch.device("meta"):
                model = timm.create_model(name)
        except Exception:
            continue
        given = model.default_cfg
        if sum(parameter.numel() for parameter in model.parameters()) <= 30e6:
            smallest = given.get("min_input_size") or [128]
            size = (given["input_size"] if given.get("fixed_input_size") else smallest)[-1]
            open_rounds.pop(0)[name] = size
            if not open_rounds:
                break
drawn = {}
for found in rounds:
    names = sorted(found)
    rng.shuffle(names)
    drawn |= {name: found[name] for name in names}
print(json.dumps(drawn))
"""


def by_lot(python: str, count: int) -> dict[str, str]:
    """Further models of timm below 30 million parameters, drawn by lot: one of each file of timm first, and a second of
    each then; none of those that the rules were written against. Notes the sizes that they insist on.
    """
    drawn = json.loads(subprocess.run([python, "-c", LOT, " ".join(TIMM)], capture_output=True, check=True).stdout)
    SIZES.update(drawn)
    return {f"lot/{name}": f'timm:create_model("{name}")' for name in list(drawn)[:count]}


def size_of(name: str) -> int:
    """Pixels: those a model insists on, else 64."""
    last = name.rpartition("/")[2]
    return SIZES.get(last) or (224 if last.startswith(FIXED) else 64)


def inputs_of(name: str) -> list[str]:
    """Inputs as the command line takes them."""
    if name in references():
        return references()[name][1]
    size = size_of(name)
    return [f"x:2,3,{size},{size}:float32"]


def measure(name: str, reference: str, python: str, work: Path, limit: float, style: str = "compat") -> dict[str, Any]:
    """One row: what `port` says and what float64 says."""
    package = "".join(character if character.isalnum() else "_" for character in name)
    out = work / package
    shutil.rmtree(out, ignore_errors=True)
    started = time.perf_counter()
    result = work / f"{package}.json"
    result.unlink(missing_ok=True)
    command = [python, "-m", "twinalign", "port", "--style", style, "--ref", reference]
    given = [word for one in inputs_of(name) for word in ("--input", one)]
    code, printed = called([*command, *given, "--out", str(out), "--json", str(result)], limit)
    (work / f"{package}.txt").write_text(printed, encoding="utf-8")
    found: dict[str, Any] = {"seconds": round(time.perf_counter() - started), "code": code}
    if result.exists():
        said = json.loads(result.read_text(encoding="utf-8"))
        found |= {key: said[key] for key in ("verdict", "stages", "left")}
        found |= {key: len(said[key]) for key in ("changes", "edits", "native", "kept")}
    else:
        lines = [line for line in printed.splitlines() if line.startswith("twinalign:")]
        found["left"] = [(lines or printed.splitlines() or ["stopped"])[-1]]
    if found.get("verdict") == "aligned":
        code, printed = called([python, "-c", CHECK, str(out), package, reference], 300)
        try:
            found["float64"] = json.loads(printed.splitlines()[-1])["largest"]
        except (ValueError, IndexError, KeyError):
            found["float64"] = None
            (work / f"{package}.check.txt").write_text(printed, encoding="utf-8")
    return found


def alone(name: str, reference: str, python: str, work: Path) -> str:
    """What becomes of PaConvert's draft of the same files without a rule: `it runs`, or its last line."""
    package = "".join(character if character.isalnum() else "_" for character in name)
    out = work / f"{package}_alone"
    shutil.rmtree(out, ignore_errors=True)
    _, printed = called([python, "-c", ALONE, str(out), package, reference, str(size_of(name))], 400)
    shutil.rmtree(out, ignore_errors=True)
    return (printed.strip().splitlines() or ["stopped"])[-1][:160]


def shown_verdict(row: dict[str, Any]) -> str:
    """The verdict, or that there is none."""
    return row.get("verdict") or ("stopped" if row["code"] == -1 else "does not run")


def table(results: dict[str, dict[str, Any]]) -> str:
    """The page of the documentation."""

    def counted(rows: dict[str, dict[str, Any]]) -> str:
        proven = [row for row in rows.values() if row.get("verdict") == "aligned"]
        wrong = sum(row.get("float64") is not None and row["float64"] > 1e-6 for row in proven)
        unchecked = sum(row.get("float64") is None for row in proven)
        tried = [row["alone"] for row in rows.values() if "alone" in row]
        runs = sum(line == "it runs" for line in tried)
        beside = f"; PaConvert's draft alone runs for {runs} of the {len(tried)} on which it was tried" if tried else ""
        checked = f"{wrong} of them wrong by the check, {unchecked} not checked"
        return f"{len(proven)} of {len(rows)} proven, {checked}{beside}"

    kinds = ("lot/", "transformers/", "diffusers/")
    known = {name: row for name, row in results.items() if not name.startswith(kinds)}
    lot = {name: row for name, row in results.items() if name.startswith("lot/")}
    others = {name: row for name, row in results.items() if name.startswith(kinds[1:])}

    def mended(rows: dict[str, dict[str, Any]]) -> str:
        again = [row["again"] for row in rows.values() if "again" in row]
        if not again:
            return ""
        more = sum(row.get("verdict") == "aligned" and (row.get("float64") or 0) <= 1e-6 for row in again)
        return (
            f" Run again after rules or verdicts were mended for them: {len(again)}, of which {more} are proven then."
        )

    lines = [
        "# Ports made by `twinalign port`",
        "",
        "Written by `python benchmarks/port_models.py --table`, on a CPU. Nobody's hand is in these ports: drafted by",
        "PaConvert, mended by rules, proven in forward, loss and two steps of SGD, in training mode where it draws no",
        "numbers beside dropout. *float64*: the largest difference of an output over the largest value, by a plain",
        "script on a fresh draw of inputs that knows nothing of twinalign's verdict. Seconds are of two cores that",
        "other work shared.",
        "",
        f"**Models that the rules were written against: {counted(known)}.**{mended(known)}",
        "",
        *([f"**Models drawn by lot when the rules stood: {counted(lot)}.**{mended(lot)}", ""] if lot else []),
        *([f"**Models of transformers and diffusers: {counted(others)}.**{mended(others)}", ""] if others else []),
        "*PaConvert alone*: what its draft of the same files does without a rule, when it is built and run once.",
        "",
        "| model | verdict | again | float64 | changes | edits | left | seconds | PaConvert alone |",
        "| --- | --- | --- | ---: | ---: | ---: | --- | ---: | --- |",
    ]
    for name, row in {**known, **lot, **others}.items():
        size = row.get("float64")
        shown = "–" if size is None else f"{size:.0e}"
        left = ""
        if row.get("verdict") != "aligned":
            found = (row.get("left") or [""])[0 if row.get("verdict") else -1]  # what does not run ends with the crash
            left = found.partition(" (traceback in ")[0].replace("|", "\\|")[:160]
        verdict = shown_verdict(row)
        again = shown_verdict(row["again"]) if "again" in row else ""
        draft = row.get("alone", "–").replace("|", "\\|")[:60]
        lines.append(
            f"| {name} | {verdict} | {again} | {shown} | {row.get('changes', '–')} | {row.get('edits', '–')} | {left} "
            f"| {row['seconds']} | {draft} |"
        )
    return "\n".join([*lines, ""])


def native_table(results: dict[str, dict[str, Any]]) -> str:
    """The page of ports in paddle's own style."""
    proven = [row for row in results.values() if row.get("verdict") == "aligned" and row["native"]]
    wrong = sum((row.get("float64") or 0) > 1e-6 for row in proven)
    checked = sum(row.get("float64") is not None for row in proven)
    lines = [
        "# Ports in paddle's own style",
        "",
        "Written by `python benchmarks/port_models.py --native --table`, on a CPU: `twinalign port --style native`,",
        "with nobody's hand in it. *Rewritten* and *stays*: places that were rewritten and proven again, and places",
        "that stay in torch's style because they could not be. *float64* is the independent check of",
        "[the other page](port-zoo.md).",
        "",
        f"**{len(proven)} of {len(results)} proven in paddle's own style, {checked} of them checked, {wrong} wrong.**",
        "",
        "| model | verdict | float64 | rewritten | stays | seconds |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for name, row in results.items():
        size = row.get("float64")
        shown = "–" if size is None else f"{size:.0e}"
        counts = f"{row.get('native', '–')} | {row.get('kept', '–')}"
        lines.append(f"| {name} | {shown_verdict(row)} | {shown} | {counts} | {row['seconds']} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--work", type=Path, default=ROOT / "result" / "port-zoo")
    parser.add_argument("--lot", type=int, default=0)
    parser.add_argument("--limit", type=float, default=400.0)
    parser.add_argument("--alone", action="store_true", help="also try PaConvert's draft of each model without rules")
    parser.add_argument("--again", action="store_true", help="run the models that are named once more")
    parser.add_argument("--native", action="store_true", help="ports in paddle's own style, which have their own page")
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    store = asked.work / ("native.json" if asked.native else "results.json")
    style = "native" if asked.native else "compat"
    known = models() | (by_lot(asked.python, asked.lot) if asked.lot else {})
    results = json.loads(store.read_text(encoding="utf-8")) if store.exists() else {}
    for name, reference in [] if asked.table else known.items():
        if asked.names and name not in asked.names:
            continue
        if asked.again:
            results[name]["again"] = measure(name, reference, asked.python, asked.work, asked.limit, style)
        elif name not in results:
            results[name] = measure(name, reference, asked.python, asked.work, asked.limit, style)
        elif not asked.alone or "alone" in results[name]:
            continue
        if asked.alone:
            results[name]["alone"] = alone(name, reference, asked.python, asked.work)
        store.write_text(json.dumps(results, indent=1), encoding="utf-8")
        print(name, json.dumps(results[name])[:300], flush=True)
    if asked.table:
        page, text = ("port-native.md", native_table(results)) if asked.native else ("port-zoo.md", table(results))
        (ROOT / "docs" / page).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
