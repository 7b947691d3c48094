"""Ports that others wrote, from PaddleClas, PaddleSeg, PaddleNLP and more, tried as they are against their originals.

    python benchmarks/real_ports.py [PAIR …] [--environments DIR] [--work DIR] [--limit SECONDS] [--again] [--table]

Packages are installed into environments of their own; models are built without pretrained weights. Each pair of
real_ports_pairs.py goes through `twinalign run` with forward, loss and two optimizer steps, and through
real_ports_check.py, which runs both models in float64 without twinalign. WORK/results.json keeps what was found, and a
pair that is in it is run again with `--again` only. `--check` repeats the float64 part alone, `--table` writes
docs/real-ports.md from what was found; a pair that WORK does not have keeps its row.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import real_ports_pairs

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
COMMON = ["numpy==2.4.6", "ml-dtypes"]
ENVIRONMENTS: dict[str, tuple[str, str]] = {
    "torch": ("torch==2.15.0 torchvision==0.29.2 timm==1.0.31 transformers==5.23.0 diffusers==0.42.1", ""),
    "paddle": (
        "paddlepaddle==3.3.1 requests setuptools<81 pip six pyyaml scipy scikit-learn prettytable ujson easydict tqdm "
        "colorlog colorama filelock regex ftfy einops omegaconf sentencepiece rich jinja2 dill multiprocess shapely "
        "terminaltables typeguard matplotlib importlib_metadata psutil pandas datasets==2.21.0 "
        "huggingface-hub==0.23.4 fastapi uvicorn Flask-Babel opencv-python-headless",
        "paddleclas==2.6.0 paddleseg==2.8.0 paddlenlp==2.8.1 ppdiffusers==0.29.0 paddledet==2.6.0 visualdl faiss-cpu "
        "tool-helpers aistudio-sdk==0.2.6 seqeval jieba pycocotools",
    ),
    "paddleformers": (
        "paddlepaddle==3.3.1 transformers>=5,<5.4 colorlog scikit-learn multiprocess datasets tqdm sentencepiece "
        "jinja2 regex tiktoken omegaconf GPUtil importlib_metadata binpacking orjson safetensors setuptools<81 "
        "requests pyyaml six pip einops psutil opencv-python-headless",
        "paddleformers==1.2.0 visualdl aistudio-sdk modelscope",
    ),
}
"""Name -> packages with what they require, and packages without (old ones ask for versions that do not go together)."""


def install(folder: Path) -> None:
    """Make the environments that are missing."""
    uv = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
    for name, (whole, alone) in ENVIRONMENTS.items():
        python = folder / name / "bin" / "python"
        if (folder / name / "complete").exists():
            continue
        subprocess.run([uv, "venv", "-q", "--python", "3.11", str(folder / name)], check=True)
        pip = [uv, "pip", "install", "-q", "--compile-bytecode", "--python", str(python)]
        subprocess.run([*pip, *COMMON, *whole.split()], check=True)
        if alone:
            subprocess.run([*pip, "--no-deps", *alone.split()], check=True)
        (folder / name / "complete").touch()


def pythons(pair: real_ports_pairs.Pair, folder: Path) -> dict[str, str]:
    """Interpreter of each framework."""
    port = "paddleformers" if pair.port.startswith("paddleformers") else "paddle"
    return {"torch": str(folder / "torch/bin/python"), "paddle": str(folder / port / "bin/python")}


def called(command: list[str], limit: float, folder: Path = ROOT) -> tuple[int, str]:
    """Exit code (-1: stopped after `limit` seconds) and what was printed."""
    paths = os.pathsep.join(map(str, (ROOT / "tools", ROOT, HERE)))
    environment = {**os.environ, "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
        cwd=folder,
        start_new_session=True,
    )
    try:
        printed = process.communicate(timeout=limit)[0]
        return process.returncode, printed
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return -1, process.communicate()[0]


def measure(pair: real_ports_pairs.Pair, environments: Path, out: Path, limit: float, quick: bool) -> dict[str, Any]:
    """What twinalign says of a pair and what float64 says."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    of = pythons(pair, environments)
    sides = ["--ref-python", of["torch"], "--paddle-python", of["paddle"]]
    started, used = time.perf_counter(), processor_seconds()
    case = f"{HERE / 'real_ports_case.py'}:RealPort"
    command = [sys.executable, "-m", "twinalign", "run", case, "--set", f"pair={pair.name}", "--out", str(out), *sides]
    code, printed = called(command + (["--stages", "forward", "--no-locate"] if quick else []), limit)
    found: dict[str, Any] = {"seconds": round(time.perf_counter() - started, 1), "code": code, "quick": quick}
    found["processor"] = round(processor_seconds() - used, 1)
    (out / "printed.txt").write_text(printed, encoding="utf-8")
    summary = out / "summary.json"
    if summary.exists():
        found.update(said(json.loads(summary.read_text())))
    else:
        last = [line for line in printed.splitlines() if line.startswith("twinalign:")]
        found["message"] = (last or printed.splitlines() or [""])[-1][:600]
    return found


def processor_seconds() -> float:
    """What the processes that have ended have used, those that they started included."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def said(summary: dict[str, Any]) -> dict[str, Any]:
    """The parts of a summary that the table shows."""
    stages = {name: stage["verdict"] for name, stage in summary["stages"].items()}
    located = summary.get("located") or {}
    causes = [
        [fault["reference_layer"], (fault["explanation"] or {}).get("id"), (fault["explanation"] or {}).get("text")]
        for fault in located.get("faults", [])
    ]
    return {"verdict": summary["verdict"], "stages": stages, "causes": causes}


def check(names: list[str], environments: Path, work: Path) -> None:
    """Run both models of each pair in float64; `check.json` in the pair's folder says what came of it."""
    script = str(HERE / "real_ports_check.py")
    for framework in ("torch", "paddle"):
        of_python: dict[str, list[str]] = {}
        for name in names:
            python = pythons(real_ports_pairs.every_pair()[name], environments)[framework]
            of_python.setdefault(python, []).append(name)
        for python, mine in of_python.items():
            code, printed = called([python, script, framework, str(work), *mine], 120.0 * len(mine))
            if code:
                print(f"{framework} ended with {code}: {printed[-2000:]}", file=sys.stderr)


def judged(pair: real_ports_pairs.Pair, found: dict[str, Any], check: dict[str, Any]) -> dict[str, Any]:
    """What the table says of a pair: whether the verdict is right, how many causes are wrong, whether it crashed."""
    equal = bool(check.get("equal")) and not pair.differs
    verdict = found.get("verdict")
    if found["code"] == -1:
        verdict = "stopped"
    elif verdict is None:
        verdict = "crash" if found["code"] == 4 else "refused" if found["code"] in (1, 2) else "crash"
    right = verdict == "aligned" if equal else verdict in ("diverged", "refused")
    known = pair.differs or check.get("outputs") is not None
    named = {cause for _, cause, _ in found.get("causes", []) if cause}
    return {
        "equal": equal,
        "verdict": verdict,
        "right": right,
        "wrong": bool(known) and not right and verdict not in ("crash", "stopped", "inconclusive"),
        "lines": len(pair.lines),
        "wrong_causes": len(named - set(pair.causes)),
        "crash": verdict in ("crash", "stopped"),
    }


def truth(pair: real_ports_pairs.Pair, check: dict[str, Any]) -> str:
    """What float64 says, in words."""
    if check.get("equal"):
        kept = f", with {check['constants']}" if check.get("constants") else ""
        return f"equal ({check['outputs']:.0e}, gradients {check['gradients']:.0e}{kept})"
    if pair.differs:
        return pair.differs
    size = check.get("outputs")
    if size is None:
        return next((str(check[key]) for key in ("order", "twinalign", "error") if key in check), "not checked")
    return "shapes differ" if size >= 1e300 else f"differs by {size:.0e}"


def rows_of(page: str) -> dict[str, list[str]]:
    """Pair -> the cells of its row on the page."""
    found = (line.split(" | ") for line in page.splitlines() if line.startswith("| ") and " (`" in line)
    return {cells[0].removeprefix("| ").partition(" ")[0]: [cell.strip("| ") for cell in cells] for cells in found}


def row_of(pair: real_ports_pairs.Pair, result: dict[str, Any], check: dict[str, Any]) -> list[str]:
    """The cells of a pair's row."""
    found = judged(pair, result, check)
    port, reference = (text.partition(":")[0].partition(".")[0] for text in (pair.port, pair.reference))
    cells = [
        f"{pair.name} (`{port}`, `{reference}`)",
        truth(pair, check),
        found["verdict"] + (" (**wrong**)" if found["wrong"] else ""),
        str(found["lines"]),
        "–" if result.get("quick") else str(found["wrong_causes"]),
        "yes" if found["crash"] else "no",
        f"{result['processor']:.0f} cpu" + ("*" if result.get("quick") else ""),
    ]
    return [cell.replace("|", "\\|") for cell in cells]


def summary_of(rows: list[list[str]]) -> str:
    """What the rows say together."""
    equal = sum(row[1].startswith("equal (") for row in rows)
    wrong, crashes = sum("**wrong**" in row[2] for row in rows), sum(row[5] == "yes" for row in rows)
    silent = sum(
        row[3] == "0" and row[2] in (("aligned",) if row[1].startswith("equal (") else ("diverged", "refused"))
        for row in rows
    )
    causes = [int(row[4]) for row in rows if row[4] != "–"]
    return (
        f"{len(rows)} pairs, {equal} of them equal in float64: wrong verdicts {wrong}, crashes {crashes}; a right "
        f"verdict without a word from the user in {100 * silent / max(len(rows), 1):.0f} %. Causes were looked for in "
        f"{len(causes)} of them: {sum(causes)} wrong."
    )


def table(results: dict[str, dict[str, Any]], work: Path, page: str) -> str:
    """The page of the documentation; a pair without results in `work` keeps the row that it has on `page`."""
    kept, rows = rows_of(page), []
    for name, pair in real_ports_pairs.every_pair().items():
        path = work / name / "check.json"
        if name in results:
            rows.append(row_of(pair, results[name], json.loads(path.read_text()) if path.exists() else {}))
        elif name in kept:
            rows.append(kept[name])
    summary = summary_of(rows)
    rows_text = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(
        [
            "# Ports that others wrote",
            "",
            "Written by `python benchmarks/real_ports.py --table`. Models of PaddleClas, PaddleSeg, PaddleDetection,",
            "PaddleNLP, PaddleFormers, ppdiffusers and paddle.vision, as their packages on PyPI have them, against",
            "timm, torchvision, transformers and diffusers. Each pair goes through `twinalign run`: forward, loss, two",
            "optimizer steps (where the seconds have an asterisk, forward alone, and no cause is looked for). Weights",
            "are the torch model's own, moved by noise so that no layer is idle; nothing pretrained is used.",
            "",
            f"**{summary}**",
            "",
            "float64: both models run by a plain script that knows nothing of twinalign's verdict, on the same",
            "weights, which are those that twinalign converted or the torch model's in their order; the figures are",
            "the largest difference of an output over the largest value, and that of the norm of all gradients.",
            "Paddle's own constants: float32 epsilon of batch norms and slope of the hard sigmoid, in torch too.",
            "Models built in float64: neither side rounds what a constructor computes to float32, such as a table of",
            "positions.",
            "Lines: what the case had to say beyond `reference`, `reproduced` and `inputs`. Seconds: the whole run,",
            "locating included, as processor time of all processes (`cpu`); without that word the row is an older",
            "measurement, by the clock.",
            "",
            "| pair (port, reference) | float64 | twinalign | lines | wrong causes | crash | seconds |",
            "| --- | --- | --- | ---: | ---: | --- | ---: |",
            *rows_text,
            "",
        ]
    )


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="*")
    parser.add_argument("--environments", type=Path, default=ROOT / "result" / "ports" / "environments")
    parser.add_argument("--work", type=Path, default=ROOT / "result" / "ports")
    parser.add_argument("--limit", type=float, default=240.0)
    parser.add_argument("--quick", action="store_true", help="the forward stage alone, without locating")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--check", action="store_true", help="check all in float64 again")
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    store = asked.work / "results.json"
    asked.work.mkdir(parents=True, exist_ok=True)
    install(asked.environments)
    names = asked.pairs or list(real_ports_pairs.every_pair())
    for name in [] if asked.check or asked.table else names:
        results = json.loads(store.read_text()) if store.exists() else {}
        if name in results and not asked.again:
            continue
        found = measure(
            real_ports_pairs.every_pair()[name], asked.environments, asked.work / name, asked.limit, asked.quick
        )
        results = json.loads(store.read_text()) if store.exists() else {}
        results[name] = found
        store.write_text(json.dumps(results, indent=1))
        print(name, json.dumps(found)[:700], flush=True)
    made = [name for name in names if (asked.work / name / "weights" / "RealPort_ref.npz").exists()]
    unchecked = [name for name in made if asked.check or not (asked.work / name / "check.json").exists()]
    if unchecked:
        check(unchecked, asked.environments, asked.work)
    if asked.table:
        results = json.loads(store.read_text())
        path = ROOT / "docs" / "real-ports.md"
        page = path.read_text(encoding="utf-8") if path.exists() else ""
        path.write_text(table(results, asked.work, page), encoding="utf-8")


if __name__ == "__main__":
    main()
