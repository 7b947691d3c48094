"""Prepare the small real data set that twinalign's main job runs on; nothing is downloaded.

    python lite_data/prepare.py [--out DIR] [--check]

Two ImageFolders are written under DIR (default: this script's own folder):

* ``photos/{train,val}/CLASS/*``: crops of real photographs that the scikit-image and scikit-learn wheels carry;
* ``digits/{train,val}/{0..9}/*.png``: scikit-learn's handwritten digits, enlarged from 8 to 32 pixels.

The wheels are read as files and never imported, so that scikit-image's downloader cannot run and no framework is
needed. Every source file is checked against ``checksums.json`` before use and every image after it was written; a
second run finds everything in place and does nothing. README.md beside this file tells what is checked how, and why.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import fcntl
import gzip
import hashlib
import importlib.util
import io
import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

HERE = Path(__file__).resolve().parent
CHECKSUMS = HERE / "checksums.json"
MANIFEST = ".prepared.json"
"""Name of the file, inside each prepared tree, that lists the SHA-256 of every file as written on this machine."""

ORIENTATION_TAG = 0x0112
TOLERANCE = 3.0
"""Grey levels by which a cell's mean may differ from checksums.json where a JPEG codec had a hand in the pixels."""


class InputError(Exception):
    """What the user can mend: one line that names the file and the remedy. The command line exits with code 2."""


@dataclass(frozen=True)
class Photo:
    """One image of ``photos/``.

    Attributes:
        path: where it goes, relative to the tree: ``split/class/name``.
        source: the wheel's file, as ``package/path``.
        box: the crop in the source's pixels: left, top, right, bottom.
        kind: "plain", "palette" (stored with a colour palette) or "rotated" (stored on its side, with an EXIF
            orientation that tells viewers to turn it).
    """

    path: str
    source: str
    box: tuple[int, int, int, int]
    kind: str = "plain"


# A photograph is cut once, at 60 per cent of its width: the left part is for training, the right one for validation.
SPLIT_COLUMN = 0.6
REGIONS = {
    # Left, top, right, bottom as shares of the split's part: from the whole of it to small flat and tall pieces.
    "train": ((0.0, 0.0, 1.0, 1.0), (0.0, 0.0, 0.55, 0.8), (0.3, 0.2, 1.0, 1.0), (0.1, 0.3, 0.9, 0.75)),
    "val": ((0.0, 0.0, 1.0, 1.0), (0.05, 0.15, 0.95, 0.75), (0.2, 0.3, 1.0, 1.0)),
}
SKIMAGE = "skimage/data/"
SKLEARN = "sklearn/datasets/images/"
CLASSES: dict[str, tuple[str, ...]] = {
    # Several sources of a class are taken in turn.
    "astronaut": (SKIMAGE + "astronaut.png",),
    "cat": (SKIMAGE + "chelsea.png",),
    "coffee": (SKIMAGE + "coffee.png",),
    "flower": (SKLEARN + "flower.jpg",),
    "galaxy": (SKIMAGE + "hubble_deep_field.jpg",),
    "motorcycle": (SKIMAGE + "motorcycle_left.png",),
    "temple": (SKLEARN + "china.jpg",),
    "texture": (SKIMAGE + "brick.png", SKIMAGE + "grass.png", SKIMAGE + "gravel.png"),  # grayscale
}
SPECIAL = {
    "train/astronaut/1.jpg": "rotated",
    "train/coffee/2.png": "palette",
    "val/cat/2.png": "palette",
    "val/temple/2.jpg": "rotated",
}
DIGITS_SOURCE = "sklearn/datasets/data/digits.csv.gz"
DIGITS_TRAIN = 1400
"""The first 1400 of the 1797 digits train; the last 397, by other writers for the most part, validate."""


def photo_list() -> list[Photo]:
    """Every image of ``photos/``, in order of path; crops of training and validation never overlap."""
    photos = []
    for split, regions in REGIONS.items():
        for class_name, sources in CLASSES.items():
            for number, (left, top, right, bottom) in enumerate(regions):
                source = sources[number % len(sources)]
                with Image.open(wheel_file(source)) as image:
                    width, height = image.size
                cut = round(SPLIT_COLUMN * width)
                start, span = (0, cut) if split == "train" else (cut, width - cut)
                columns = start + round(left * span), start + round(right * span)
                box = (columns[0], round(top * height), columns[1], round(bottom * height))
                # Photographs that came as JPEG stay JPEG; of the others every second one is stored as PNG.
                suffix = "png" if source.endswith(".png") and number % 2 == 0 else "jpg"
                path = f"{split}/{class_name}/{number}.{suffix}"
                photos.append(Photo(path, source, box, SPECIAL.get(path, "plain")))
    return sorted(photos, key=lambda photo: photo.path)


def wheel_file(source: str) -> Path:
    """The path of a wheel's file, found without importing the package.

    Raises:
        InputError: the package, or the file within it, is not installed.
    """
    package, _, inner = source.partition("/")
    distribution = {"skimage": "scikit-image", "sklearn": "scikit-learn"}[package]
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise InputError(
            f"{package}: not installed; the wheel of {distribution} carries {inner}: pip install 'twinalign[example]'"
        )
    path = Path(spec.submodule_search_locations[0], inner)
    if not path.is_file():
        raise InputError(f"{path}: missing from {distribution}; reinstall it from its wheel")
    return path


def read_source(source: str, checksums: dict) -> bytes:
    """The bytes of a wheel's file.

    Raises:
        InputError: it is missing, or not the file that ``checksums.json`` knows.
    """
    path = wheel_file(source)
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != checksums["sources"][source]:
        raise InputError(f"{path}: not the file that lite_data/checksums.json lists; install the versions in uv.lock")
    return data


def write_photos(folder: Path, checksums: dict) -> None:
    """Write the photographs under ``folder``."""
    opened: dict[str, Image.Image] = {}
    for photo in photo_list():
        if photo.source not in opened:
            opened[photo.source] = Image.open(io.BytesIO(read_source(photo.source, checksums)))
        image = opened[photo.source].crop(photo.box)
        path = folder / photo.path
        path.parent.mkdir(parents=True, exist_ok=True)
        if photo.kind == "palette":
            image = sepia(image)
        if photo.kind == "rotated":
            # Orientation 6: the viewer turns the stored pixels by 90 degrees clockwise.
            image = image.transpose(Image.Transpose.ROTATE_90)
            exif = Image.Exif()
            exif[ORIENTATION_TAG] = 6
            image.save(path, quality=92, subsampling="4:2:0", exif=exif)
        elif path.suffix == ".jpg":
            image.save(path, quality=92, subsampling="4:2:0")
        else:
            image.save(path)


def sepia(image: Image.Image) -> Image.Image:
    """The image in 256 brown tones, as a palette image: no colour quantiser, hence the same under every Pillow."""
    gray = image.convert("L")
    tones = np.arange(256)[:, None] * np.array([255, 225, 180]) // 255
    toned = Image.frombytes("P", gray.size, gray.tobytes())
    toned.putpalette(tones.astype(np.uint8).tobytes(), "RGB")
    return toned


def write_digits(folder: Path, checksums: dict) -> None:
    """Write the digits under ``folder`` as 32 by 32 grayscale PNG."""
    with gzip.open(io.BytesIO(read_source(DIGITS_SOURCE, checksums)), "rt") as lines:
        rows = np.array([[round(float(cell)) for cell in row] for row in csv.reader(lines)], dtype=np.int64)
    images, labels = enlarge(rows[:, :64].reshape(-1, 8, 8)), rows[:, 64]
    for split in ("train", "val"):
        for label in range(10):
            (folder / split / str(label)).mkdir(parents=True)
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        split = "train" if number < DIGITS_TRAIN else "val"
        Image.fromarray(image).save(folder / split / str(label) / f"{number:04d}.png")


def enlarge(digits: np.ndarray) -> np.ndarray:
    """Bilinear enlargement of 8 by 8 digits to 32 by 32, in integers, so that it is exact everywhere.

    Args:
        digits: (N, 8, 8) integers from 0 (paper) to 16 (ink).

    Returns:
        (N, 32, 32) uint8 from 0 to 255.
    """
    # The centre of output pixel i lies at (2 i - 3) / 8 input pixels: weights are whole eighths.
    eighths = np.clip(2 * np.arange(32) - 3, 0, 8 * 7)
    low, fraction = np.minimum(eighths // 8, 6), eighths - 8 * np.minimum(eighths // 8, 6)
    weights = np.zeros((32, 8), dtype=np.int64)
    weights[np.arange(32), low] = 8 - fraction
    weights[np.arange(32), low + 1] += fraction
    enlarged = weights @ digits @ weights.T  # 64 * 16 where there is full ink
    return ((enlarged * 255 + 512) // 1024).astype(np.uint8)


def describe(path: Path) -> dict:
    """What ``checksums.json`` keeps of a photograph: mode, size, orientation, pixels as digest and as 4 x 4 means."""
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB"))
        orientation = image.getexif().get(ORIENTATION_TAG, 1)
        mode, size = image.mode, list(image.size)
    rows = np.array_split(pixels.astype(np.float64), 4, axis=0)
    means = [[cell.mean(axis=(0, 1)).round(2).tolist() for cell in np.array_split(row, 4, axis=1)] for row in rows]
    digest = hashlib.sha256(pixels.tobytes()).hexdigest()
    return {"mode": mode, "size": size, "orientation": orientation, "pixels": digest, "means": means}


def check_photos(folder: Path, checksums: dict) -> None:
    """Compare the decoded photographs with ``checksums.json``.

    PNG made from PNG must decode to the very pixels. Where a JPEG encoder or decoder had a hand in it the digest may
    differ from machine to machine; then mode, size and orientation must be equal and the means within `TOLERANCE`.

    Raises:
        InputError: an image differs.
    """
    for photo in photo_list():
        found, expected = describe(folder / photo.path), checksums["photos"][photo.path]
        lossless = photo.path.endswith(".png") and photo.source.endswith(".png")
        facts = ("mode", "size", "orientation", "pixels") if lossless else ("mode", "size", "orientation")
        wrong = [fact for fact in facts if found[fact] != expected[fact]]
        if not wrong and np.abs(np.subtract(found["means"], expected["means"])).max() > TOLERANCE:
            wrong = ["means"]
        if wrong:
            raise InputError(f"{photo.path}: {', '.join(wrong)} not as in lite_data/checksums.json; check this Pillow")


def digits_digest(folder: Path) -> dict[str, str]:
    """For each split: SHA-256 over relative path and decoded pixels of every digit, in order of path."""
    digests = {}
    for split in ("train", "val"):
        digest = hashlib.sha256()
        for path in sorted((folder / split).rglob("*.png")):
            digest.update(path.relative_to(folder).as_posix().encode())
            with Image.open(path) as image:
                digest.update(image.tobytes())
        digests[split] = digest.hexdigest()
    return digests


def check_digits(folder: Path, checksums: dict) -> None:
    """Compare the decoded digits with ``checksums.json``.

    Raises:
        InputError: they differ.
    """
    if digits_digest(folder) != checksums["digits"]:
        raise InputError(f"{folder}: digits not as in lite_data/checksums.json; check this Pillow")


TREES = {"photos": (write_photos, check_photos), "digits": (write_digits, check_digits)}


def file_digests(folder: Path) -> dict[str, str]:
    """Relative path to SHA-256 of every file under ``folder``, the manifest left out."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / MANIFEST)
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def state_of(folder: Path) -> tuple[bool, str]:
    """Whether a prepared tree is complete and untouched, and if not, what is wrong in a few words.

    Raises:
        InputError: the tree holds a file that this script did not write, which rebuilding would destroy.
    """
    if not folder.exists():
        return False, "missing"
    if not folder.is_dir():
        raise InputError(f"{folder}: in the way; move it, or give another folder with --out")
    found = file_digests(folder)
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        known, recipe = dict(manifest["files"]), manifest["checksums"]
    except (OSError, ValueError, KeyError, TypeError):
        known, recipe = {}, None
    foreign = sorted(set(found) - set(known))
    if foreign:
        raise InputError(f"{folder / foreign[0]}: not written by prepare.py; move it, or give another --out")
    changed = sorted(name for name in known if found.get(name) != known[name])
    if changed:
        return False, f"{changed[0]} is {'changed' if changed[0] in found else 'missing'}"
    if recipe != hashlib.sha256(CHECKSUMS.read_bytes()).hexdigest():
        return False, "prepared by another version of this script"
    return True, ""


def build_tree(out: Path, name: str, checksums: dict) -> None:
    """Build one tree beside its place, check it, and rename it into place; an interruption leaves no half tree."""
    write, check = TREES[name]
    partial, old, place = out / f".{name}.partial", out / f".{name}.old", out / name
    # The lock is held: what an interrupted run left under these names belongs to nobody.
    shutil.rmtree(partial, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)
    try:
        partial.mkdir()
        write(partial, checksums)
        check(partial, checksums)
        recipe = hashlib.sha256(CHECKSUMS.read_bytes()).hexdigest()
        (partial / MANIFEST).write_text(json.dumps({"checksums": recipe, "files": file_digests(partial)}, indent=0))
        if place.exists():
            os.replace(place, old)
        os.replace(partial, place)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def locked(out: Path) -> Iterator[None]:
    """Hold the folder's lock, so that of two runs at the same time one waits and then finds everything done."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        handle = (out / ".lock").open("a")
    except OSError as error:
        raise InputError(f"{out}: cannot write here ({error.strerror}); give another folder with --out") from None
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def prepare(out: Path = HERE) -> list[str]:
    """Bring ``out/photos`` and ``out/digits`` into being, or leave them alone where they are right.

    Args:
        out: the folder to write under; made where it is missing.

    Returns:
        The names of the trees that were written: of "photos" and "digits", none on a second run.

    Raises:
        InputError: a wheel is missing or another version, a foreign file is in the way, or ``out`` is not writable.
    """
    checksums = json.loads(CHECKSUMS.read_text())
    written = []
    with locked(out):
        for name in TREES:
            right, _ = state_of(out / name)
            if not right:
                try:
                    build_tree(out, name, checksums)
                except OSError as error:
                    raise InputError(f"{error.filename or out}: cannot be written ({error.strerror})") from None
                written.append(name)
    return written


def check(out: Path = HERE) -> None:
    """Check what ``prepare`` has written, byte by byte and pixel by pixel, and write nothing.

    Raises:
        InputError: something is missing or changed.
    """
    checksums = json.loads(CHECKSUMS.read_text())
    for name, (_, check_pixels) in TREES.items():
        right, wrong = state_of(out / name)
        if not right:
            raise InputError(f"{out / name}: {wrong}; run `python lite_data/prepare.py`")
        check_pixels(out / name, checksums)


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code: 0 when everything is in place, 2 otherwise."""
    parser = argparse.ArgumentParser(description="Prepare twinalign's small real data set; nothing is downloaded.")
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write under (default: %(default)s)")
    parser.add_argument("--check", action="store_true", help="only check what is there; exit code 2 if it is not right")
    options = parser.parse_args(arguments)
    try:
        if options.check:
            check(options.out)
            print(f"{options.out}: photos and digits are in place and right")
        else:
            written = prepare(options.out)
            print(f"{options.out}: " + (f"wrote {' and '.join(written)}" if written else "nothing to do"))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
