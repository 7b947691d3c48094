"""What the torch side does on a GPU: recordings, half precision, device selection, training; the tables of docs/gpu.md.

    python benchmarks/gpu.py record OUT                    # on a machine with a GPU and torch; paddle is not needed
    python benchmarks/gpu.py page OUT --page docs/gpu.md   # on a machine with paddle: records the port on its CPU

`record` records the reference of each case on the GPU twice and on the CPU once and compares these recordings: right
computations on two devices have to be aligned, also those of a case that allows TF32, which twinalign forbids again.
`page` takes the recordings of the GPU (OUT/recordings.0 and so on), records the paddle side on the CPU with the same
weights and compares.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
CASES = {
    "small MoCo v3, ViT": "benchmarks/gpu_cases.py:SettledMoCoViT",
    "small MoCo v3, ResNet-18": "pipeline.small_moco:SmallMoCoResNet",
    "MobileNetV3-Small": "benchmarks/zoo_cases.py:MobileNetV3Small",
    "ResNet-18": "benchmarks/zoo_cases.py:ResNet18",
}
CARRIED = ("small_MoCo_v3,_ViT/gpu", "MobileNetV3-Small/gpu")
"""Recordings to be compared with the port's on another machine."""
PIECE = 15 * 2**20
WITH_TF32 = "benchmarks/gpu_cases.py:WithTF32"
WITH_HARD_ACTIVATIONS = ("MobileNetV3-Small",)
HALVES = ("bfloat16", "float16")
STAGES = {"forward": "forward", "metric": "metric", "loss": "loss", "backward": "losses", "train": "train"}
"""File names of the stages' recordings."""
MODES = ("fp32", "bf16", "amp")
PAGE_START, PAGE_END = "<!-- benchmarks/gpu.py page -->", "<!-- end -->"


def twinalign(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """One command of twinalign, with the environment's `variables` changed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, _paths())), **variables}
    return subprocess.run(
        [sys.executable, "-m", "twinalign", *words], cwd=HERE, env=environment, capture_output=True, text=True
    )


def _paths() -> Iterator[str]:
    yield from (str(HERE / "tools"), str(HERE), os.environ.get("PYTHONPATH", ""))


def record(case: str, side: str, out: Path, device: str, *words: str) -> float:
    """Record one side; return seconds. Raises SystemExit with what the command said if it fails."""
    start = time.perf_counter()
    words = ("record", case, "--side", side, "--out", str(out), "--device", device, *words)
    finished = twinalign(*words)
    if finished.returncode:
        raise SystemExit(f"{' '.join(words)}: exit code {finished.returncode}\n{finished.stdout}\n{finished.stderr}")
    return time.perf_counter() - start


def compare(
    reference: Path, other: Path, side: str = "ref", precision: str = "", words: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The verdict of each stage that both folders have: {stage: {verdict, noise, tensors}}."""
    found = {}
    for stage, name in STAGES.items():
        files = [reference / precision / f"{name}_ref.npy", other / precision / f"{name}_{side}.npy"]
        if not all(file.exists() for file in files):
            continue
        exact = [reference / "float64" / files[0].name, other / "float64" / files[1].name]
        float64 = ["--ref64", str(exact[0]), "--paddle64", str(exact[1])] if exact[0].exists() else []
        finished = twinalign("compare", *map(str, files), *float64, *words, "--json", "-")
        if finished.returncode not in (0, 1, 3):
            raise SystemExit(f"{files[0]}, {files[1]}: {finished.stderr}")
        found[stage] = of_comparison(json.loads(finished.stdout))
    return found


def of_comparison(comparison: Mapping[str, Any]) -> dict[str, Any]:
    """What the tables show of a comparison."""
    tensors = comparison["tensors"]
    return {
        "verdict": comparison["verdict"],
        "tensors": len(tensors),
        "not aligned": [entry["name"] for entry in tensors if entry["verdict"] == "diverged"],
        "noise": max((entry["noise_ratio"] or 0.0 for entry in tensors), default=0.0),
        "error": max((entry["max_abs"] or 0.0 for entry in tensors), default=0.0),
    }


def devices() -> dict[str, Any]:
    """What `doctor` finds, and what is said where a GPU is missing or has too few for the ranks."""
    case = CASES["MobileNetV3-Small"]
    asked = {
        "no GPU visible": (["--device", "gpu"], {"CUDA_VISIBLE_DEVICES": ""}),
        "two ranks, one GPU": (["--device", "gpu", "--ranks", "2"], {"CUDA_VISIBLE_DEVICES": "0"}),
    }
    said = {}
    for name, (words, variables) in asked.items():
        out = HERE / "result" / "gpu_refused"
        finished = twinalign(
            "record", case, "--side", "ref", "--out", str(out), "--stages", "loss", *words, **variables
        )
        said[name] = {"exit code": finished.returncode, "message": finished.stderr.strip().splitlines()[-1:]}
        shutil.rmtree(out, ignore_errors=True)
    doctor = twinalign("doctor", "--json")
    return {"refused": said, "doctor": json.loads(doctor.stdout)}


def record_case(name: str, folder: Path) -> dict[str, Any]:
    """One case on both devices, in float32 and float64: seconds, GPU against CPU, and the GPU against itself."""
    places = {"gpu": "gpu", "again": "gpu", "cpu": "cpu"}
    out = {place: folder / name.replace(" ", "_") / place for place in places}
    seconds = {place: record(CASES[name], "ref", out[place], device) for place, device in places.items()}
    # On the CPU too, torch's gradient of hardsigmoid has a sixth in float32.
    words = ("--allow", "paddle_hard_activation") if name in WITH_HARD_ACTIVATIONS else ()
    return {
        "seconds": seconds,
        "against cpu": compare(out["gpu"], out["cpu"], words=words),
        "against itself": compare(out["gpu"], out["again"]),
    }


def record_half(precision: str, folder: Path) -> dict[str, Any]:
    """The small ViT in half precision on both devices."""
    out = {device: folder / precision / device for device in ("gpu", "cpu")}
    for device, place in out.items():
        words = ("--precision", precision, "--stages", ",".join(stage for stage in STAGES if stage != "train"))
        record(CASES["small MoCo v3, ViT"], "ref", place, device, *words)
    return compare(out["gpu"], out["cpu"], precision=precision)


def record_tf32(folder: Path) -> dict[str, Any]:
    """A case that allows TF32: recorded, and what TF32 does to the outputs where nothing forbids it."""
    import torch

    from benchmarks.gpu_cases import WithTF32

    out = {device: folder / "tf32" / device for device in ("gpu", "cpu")}
    for device, place in out.items():
        record(WITH_TF32, "ref", place, device)
    model = WithTF32().reference().eval()
    images = torch.randn(4, 3, 64, 64)
    with torch.no_grad():
        truth = model.double()(images.double())
        found = model.float().cuda()(images.cuda()).cpu()
    torch.backends.cuda.matmul.allow_tf32 = False  # as torch has it by itself, for the steps that are timed later
    found_in = compare(out["gpu"], out["cpu"], words=("--allow", "paddle_hard_activation"))
    return found_in | {"error with TF32": float((found - truth).norm() / truth.norm())}


def attach(folder: Path) -> dict[str, Any]:
    """A trainer recorded by `twinalign attach` on the GPU, its repeat there, and the same on the CPU."""
    out = {name: folder / f"attached_{name}" for name in ("gpu", "repeat", "cpu")}
    for name, place in out.items():
        words = ["attach", "--out", str(place), *(["--repeat"] if name == "repeat" else []), "--", sys.executable]
        finished = twinalign(*words, "benchmarks/gpu_trainer.py", "cpu" if name == "cpu" else "cuda")
        if finished.returncode:
            raise SystemExit(f"{' '.join(words)}: {finished.stderr}")
    finished = twinalign("compare", str(out["gpu"]), str(out["cpu"]), "--ref-repeat", str(out["repeat"]), "--json", "-")
    return of_comparison(json.loads(finished.stdout))


def pretrain(mode: str, device: str, folder: Path) -> dict[str, Any]:
    """One epoch of MoCo v3 on the digits by `moco_ref train`: its losses, and images a second at the end."""
    words = "train lite_data/digits -a vit_digits --image-size 32 -b 128 --epochs 2 --warmup-epochs 1 -p 1".split()
    words += "--optimizer adamw --lr 0.002 --wd 0.1 --moco-dim 64 --moco-mlp-dim 256 -j 0".split()
    words += ["--device", device, "--precision", mode, "--output", str(folder / f"{mode}_{device}")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, _paths()))}
    command = [sys.executable, "-m", "moco_ref", *words]
    finished = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True)
    lines = [line for line in finished.stdout.splitlines() if ", loss: " in line]
    if finished.returncode or not lines:
        return {"failure": (finished.stderr or finished.stdout).strip().splitlines()[-1]}
    return {"losses": [float(line.partition(", loss: ")[2].partition(",")[0]) for line in lines]}


def step_speed(arch: str, mode: str, batch: int) -> dict[str, float]:
    """Images a second and peak memory (GiB) of MoCo's own step on the GPU, views of noise."""
    import types

    import torch

    import moco_ref
    from moco_ref.training import precision, pretraining

    torch.cuda.reset_peak_memory_stats()
    with torch.device("cuda"):
        model = moco_ref.build_moco(arch)
    model.train()
    optimizer = moco_ref.build_optimizer("adamw" if arch.startswith("vit") else "lars", model.parameters(), 1e-4, 0.1)
    arguments = types.SimpleNamespace(lr=1e-4, epochs=10, warmup_epochs=1, moco_m=0.99, moco_m_cos=True)
    kind = precision.Precision(mode, model, "cuda")
    size = model.base_encoder.image_size
    views = [torch.randn(batch, 3, size, size, device="cuda") for _ in range(2)]
    seconds = []
    for _ in range(12):
        torch.cuda.synchronize()
        start = time.perf_counter()
        pretraining.train_step(model, optimizer, *views, 1.5, arguments, kind)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    middle = sorted(seconds[4:])[len(seconds[4:]) // 2]
    return {"images a second": batch / middle, "GiB": torch.cuda.max_memory_allocated() / 2**30}


def survey() -> dict[str, Any]:
    """Where float64 differs between CPU and GPU; in a process of its own, whose kernels are torch's."""
    code = "import json; from gpu_survey import float64_survey; print(json.dumps(float64_survey()))"
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=HERE / "benchmarks",
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(finished.stdout.splitlines()[-1])


def archive(work: Path, out: Path) -> None:
    """The recordings of `CARRIED` in pieces, which may be all that can be taken from the machine."""
    whole = work / "recordings.tar.gz"
    with tarfile.open(whole, "w:gz") as archive:
        for place in (work / folder for folder in CARRIED):
            archive.add(place, place.relative_to(work))
    data = whole.read_bytes()
    for number, start in enumerate(range(0, len(data), PIECE)):
        (out / f"recordings.{number}").write_bytes(data[start : start + PIECE])
    print("bytes of recordings", len(data), flush=True)


def record_all(out: Path) -> None:
    """All that needs the GPU; OUT/gpu.json after each part, so that a cut loses nothing that is done."""
    sys.path[:0] = [str(HERE), str(HERE / "tools")]
    out.mkdir(parents=True, exist_ok=True)
    work = HERE / "result" / "gpu_recordings"
    shutil.rmtree(work, ignore_errors=True)
    import torch

    found: dict[str, Any] = {"gpu": torch.cuda.get_device_name()}
    with ThreadPoolExecutor(6) as pool:
        parts = {
            ("devices",): pool.submit(devices),
            ("survey",): pool.submit(survey),
            ("tf32",): pool.submit(record_tf32, work),
        }
        parts[("attached",)] = pool.submit(attach, work)
        parts |= {("cases", name): pool.submit(record_case, name, work) for name in CASES}
        parts |= {("half", name): pool.submit(record_half, name, work) for name in HALVES}
        parts |= {
            ("pretraining", f"{mode} {device}"): pool.submit(pretrain, mode, device, work)
            for mode in MODES
            for device in ("gpu", "cpu")
        }
        for keys, part in parts.items():
            try:
                result: Any = part.result()
            except (SystemExit, Exception) as error:
                result = {"failure": str(error)[-1500:]}
            place = found
            for key in keys[:-1]:
                place = place.setdefault(key, {})
            place[keys[-1]] = result
            (out / "gpu.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
            print(*keys, json.dumps(result)[:600], flush=True)
    archive(work, out)
    for arch, batch in (("vit_small", 256), ("resnet50", 256)):
        for mode in MODES:
            found.setdefault("steps", {})[f"{arch}, batch {batch}, {mode}"] = step_speed(arch, mode, batch)
            print(arch, mode, found["steps"][f"{arch}, batch {batch}, {mode}"], flush=True)
    (out / "gpu.json").write_text(json.dumps(found, indent=1), encoding="utf-8")


def of_port(out: Path) -> dict[str, Any]:
    """Record the port on the CPU beside the carried recordings of the GPU, and compare: {case: {stage: ...}}."""
    work = HERE / "result" / "gpu_carried"
    shutil.rmtree(work, ignore_errors=True)
    pieces = sorted(out.glob("recordings.*"), key=lambda path: int(path.suffix[1:]))
    with tarfile.open(fileobj=io.BytesIO(b"".join(piece.read_bytes() for piece in pieces))) as archive:
        archive.extractall(work, filter="data")
    found = {}
    for name, case in CASES.items():
        place = work / name.replace(" ", "_") / "gpu"
        if place.exists():
            record(case, "paddle", place, "cpu")
            found[name] = compare(place, place, "paddle")
    return found


def verdicts(rows: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A table: a row a name, a column a stage, with the verdict and how often it is of how many tensors."""
    yield f"| | {' | '.join(STAGES)} |"
    yield f"| --- |{' --- |' * len(STAGES)}"
    for name, stages in rows.items():
        cells = []
        for stage in STAGES:
            entry = stages.get(stage)
            cells.append("–" if entry is None else entry["verdict"])
            if entry is not None and entry["not aligned"]:
                cells[-1] += f" ({len(entry['not aligned'])} of {entry['tensors']})"
            elif entry is not None:
                cells[-1] += f", {entry['tensors']} tensor{'s' * (entry['tensors'] != 1)}"
        yield f"| {name} | {' | '.join(cells)} |"


def page(found: Mapping[str, Any], ported: Mapping[str, Any]) -> Iterator[str]:
    """The measured section of docs/gpu.md."""
    reference = found["devices"]["doctor"]["ref"]
    versions = reference["versions"]
    yield f"One {found['gpu']}, torch {versions['torch']}, cuDNN {versions['cudnn']}, without paddle; written by"
    yield "`python benchmarks/gpu.py record OUT` there and `python benchmarks/gpu.py page OUT --page docs/gpu.md` here."
    works = [path for path, said in reference["paths"].items() if said == "works"]
    yield f"\n`twinalign doctor` finds {len(works)} of {len(reference['paths'])} device paths of torch working."
    yield "\n### The reference on the GPU, the port on a CPU\n"
    yield from verdicts(ported)
    yield "\n### The same reference on the GPU and on a CPU\n"
    against = {name: case["against cpu"] for name, case in found["cases"].items()}
    half = {f"small MoCo v3, ViT, {name}": stages for name, stages in found["half"].items()}
    yield from verdicts(against | half)
    yield "\n### The same reference twice on the GPU\n"
    again = {name: case["against itself"] for name, case in found["cases"].items()}
    yield from verdicts(again)
    errors = [(stage, entry["error"]) for stages in again.values() for stage, entry in stages.items()]
    apart = {stage: max(error for one, error in errors if one == stage) for stage, error in errors if error}
    said = ", ".join(f"in {stage} by up to {error:.1e}" for stage, error in apart.items())
    same = sum(not error for _, error in errors)
    yield f"\n{same} of these {len(errors)} pairs have no difference at all; the others"
    yield f"differ {said}."
    attached = found["attached"]
    yield f"\nA trainer recorded by `twinalign attach` on the GPU and on the CPU: {attached['verdict']},"
    yield f"{attached['tensors']} tensors."
    yield "\n### TF32\n"
    stages = {stage: entry for stage, entry in found["tf32"].items() if stage in STAGES}
    aligned = sum(entry["verdict"] == "aligned" for entry in stages.values())
    yield f"With TF32 the outputs of MobileNetV3-Small are off by {found['tf32']['error with TF32']:.1e}. twinalign"
    yield f"forbids it, also after the case's code has allowed it: {aligned} of {len(stages)} stages of such a case are"
    yield "aligned with the CPU."
    yield "\n### float64\n"
    kernels = found["survey"]["found"]
    yield f"Of {found['survey']['functions']} functions, {len(kernels)} return something else on the GPU than on the"
    yield "CPU in float64: " + ", ".join(
        f"`{name}` by {max(parts.values()):.1e} (a sixth in float32)" for name, parts in kernels.items()
    )
    yield "relative. In float64 recordings on a GPU twinalign computes these exactly."
    yield "\n### Which device\n"
    for name, said in found["devices"]["refused"].items():
        text = " ".join(said["message"]).replace(reference["interpreter"]["executable"], "python3")
        yield f"- {name}: exit code {said['exit code']}, `{text}`"
    yield "\n### MoCo v3 training steps in torch\n"
    yield "| model | precision | images a second | GiB |\n| --- | --- | ---: | ---: |"
    for name, speed in found["steps"].items():
        arch, _, mode = name.rpartition(", ")
        yield f"| {arch} | {mode} | {speed['images a second']:.0f} | {speed['GiB']:.1f} |"
    yield "\nLoss of the small ViT on the digits, 20 steps of AdamW; on the CPU bf16 and amp are emulated:\n"
    yield "| precision | step 1, GPU / CPU | step 5 | mean of steps 11 to 20 |\n| --- | ---: | ---: | ---: |"
    for mode in MODES:
        pair = [found["pretraining"][f"{mode} {device}"]["losses"] for device in ("gpu", "cpu")]
        cells = [" / ".join(f"{losses[at]:.4f}" for losses in pair) for at in (0, 4)]
        cells.append(" / ".join(f"{sum(losses[10:]) / len(losses[10:]):.4f}" for losses in pair))
        yield f"| {mode} | {' | '.join(cells)} |"


def write_page(out: Path, path: Path) -> None:
    """Replace the measured section of the page."""
    found = json.loads((out / "gpu.json").read_text(encoding="utf-8"))
    text = "\n".join(page(found, of_port(out)))
    before, _, rest = path.read_text(encoding="utf-8").partition(PAGE_START)
    after = rest.partition(PAGE_END)[2]
    path.write_text(f"{before}{PAGE_START}\n{text}\n{PAGE_END}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("record", "page"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--page", type=Path, help="file whose section between the two marks is replaced")
    options = parser.parse_args()
    if options.action == "record":
        record_all(options.out.resolve())
    elif options.page is None:
        parser.error("page: give the file as --page")
    else:
        write_page(options.out.resolve(), options.page)


if __name__ == "__main__":
    main()
