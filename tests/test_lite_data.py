"""The script that prepares the real data: complete, the same each time, and safe to run again or to interrupt."""

from __future__ import annotations

import gzip
import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

SCRIPT = Path(__file__).parents[1] / "lite_data" / "prepare.py"


def load_script():
    spec = importlib.util.spec_from_file_location("lite_data_prepare", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


script = load_script()


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("data")
    assert script.prepare(out) == ["photos", "digits"]
    return out


@pytest.fixture
def copy(prepared, tmp_path) -> Path:
    """A prepared folder to spoil; only the photographs are looked at, so only they are copied."""
    shutil.copytree(prepared / "photos", tmp_path / "photos")
    return tmp_path


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


def test_photographs_are_what_the_main_job_needs(prepared):
    modes, suffixes, sizes, orientations = set(), set(), set(), set()
    for split, least in (("train", 16), ("val", 16)):
        root = prepared / "photos" / split
        classes = sorted(path.name for path in root.iterdir())
        files = [path for path in root.rglob("*") if path.is_file()]
        assert classes == sorted(script.CLASSES)
        assert len(classes) >= 4
        assert len(files) >= least
        for path in files:
            with Image.open(path) as image:
                modes.add(image.mode)
                sizes.add(image.size)
                orientations.add(image.getexif().get(script.ORIENTATION_TAG, 1))
                assert image.format == {".jpg": "JPEG", ".png": "PNG"}[path.suffix]
            suffixes.add(path.suffix)
    assert modes == {"RGB", "L", "P"}
    assert suffixes == {".jpg", ".png"}
    assert orientations == {1, 6}
    ratios = [width / height for width, height in sizes]
    assert min(ratios) < 0.6
    assert max(ratios) > 1.8
    assert len(sizes) > 20


def test_photographs_are_pieces_of_the_wheels_pictures(prepared):
    """Lossless ones are the very pixels of their source, by a reading of our own."""
    exact = 0
    for photo in script.photo_list():
        if photo.kind != "plain":
            continue
        left, top, right, bottom = photo.box
        with Image.open(script.wheel_file(photo.source)) as source:
            expected = np.asarray(source)[top:bottom, left:right]
        with Image.open(prepared / "photos" / photo.path) as image:
            found = np.asarray(image)
        assert found.shape == expected.shape
        if photo.path.endswith(".png"):
            np.testing.assert_array_equal(found, expected)
            exact += 1
        else:
            assert np.abs(found.astype(float) - expected).mean() < 6
    assert exact > 10


def test_training_and_validation_share_no_pixel():
    boxes = {"train": {}, "val": {}}
    for photo in script.photo_list():
        boxes[photo.path.split("/")[0]].setdefault(photo.source, []).append(photo.box)
    for source, of_training in boxes["train"].items():
        rightmost = max(right for _, _, right, _ in of_training)
        assert all(left >= rightmost for left, *_ in boxes["val"].get(source, [])), source


def test_a_picture_stored_on_its_side_shows_upright_where_orientation_is_applied(prepared):
    from PIL import ImageOps

    photo = next(photo for photo in script.photo_list() if photo.kind == "rotated")
    with Image.open(prepared / "photos" / photo.path) as image:
        upright = np.asarray(ImageOps.exif_transpose(image)).astype(float)
    with Image.open(script.wheel_file(photo.source)) as source:
        expected = np.asarray(source.crop(photo.box)).astype(float)
    assert np.abs(upright - expected).mean() < 6


def test_digits_are_scikit_learns(prepared):
    from sklearn.datasets import load_digits

    digits = load_digits()
    found = {}
    for split in ("train", "val"):
        for path in (prepared / "digits" / split).rglob("*.png"):
            with Image.open(path) as image:
                assert (image.mode, image.size) == ("L", (32, 32))
                found[int(path.stem)] = (split, int(path.parent.name), np.asarray(image))
    assert sorted(found) == list(range(1797))
    assert [found[number][0] for number in range(1797)] == ["train"] * 1400 + ["val"] * 397
    np.testing.assert_array_equal([found[number][1] for number in range(1797)], digits.target)
    for number in range(0, 1797, 50):
        # Pillow enlarges in the same way, with roundings of its own.
        small = Image.fromarray((digits.images[number] * (255 / 16)).astype(np.float32))
        expected = np.asarray(small.resize((32, 32), Image.Resampling.BILINEAR))
        assert np.abs(found[number][2] - expected).max() <= 1


def test_a_second_run_does_nothing(prepared):
    before = snapshot(prepared)
    assert script.prepare(prepared) == []
    assert snapshot(prepared) == before
    assert [path.name for path in prepared.iterdir() if path.name.startswith(".")] == [".lock"]


def test_two_preparations_are_equal(prepared, tmp_path):
    script.prepare(tmp_path)
    for name in ("photos", "digits"):
        assert script.file_digests(tmp_path / name) == script.file_digests(prepared / name)


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_a_spoilt_folder_is_put_right(copy, damage, capsys):
    path = copy / "photos" / "train" / "cat" / "0.png"
    before = snapshot(copy / "photos")[str(path)][1]
    path.write_bytes(b"spoilt") if damage == "changed" else path.unlink()
    assert script.state_of(copy / "photos") == (False, f"train/cat/0.png is {damage}")
    assert script.main(["--out", str(copy), "--check"]) == 2
    expected = f"error: {copy / 'photos'}: train/cat/0.png is {damage}; run `python lite_data/prepare.py`\n"
    assert capsys.readouterr().err == expected
    assert script.prepare(copy) == ["photos", "digits"]  # the digits were not copied
    assert path.read_bytes() == before


def test_files_of_others_are_never_deleted(copy, capsys):
    mine = copy / "photos" / "train" / "cat" / "mine.png"
    mine.write_bytes(b"dear to me")
    assert script.main(["--out", str(copy)]) == 2
    assert capsys.readouterr().err == f"error: {mine}: not written by prepare.py; move it, or give another --out\n"
    assert mine.read_bytes() == b"dear to me"


@pytest.mark.parametrize("moment", ["write", "check"])
def test_an_interrupted_run_leaves_what_was_there(copy, monkeypatch, moment):
    (copy / "photos" / "train" / "cat" / "0.png").unlink()
    before = snapshot(copy / "photos")
    write, check = script.TREES["photos"]

    def interrupt(*_):
        raise KeyboardInterrupt

    def write_and_interrupt(folder, checksums):
        write(folder, checksums)
        interrupt()

    functions = {"write": (write_and_interrupt, check), "check": (write, interrupt)}
    monkeypatch.setitem(script.TREES, "photos", functions[moment])
    with pytest.raises(KeyboardInterrupt):
        script.prepare(copy)
    assert snapshot(copy / "photos") == before
    assert sorted(path.name for path in copy.iterdir()) == [".lock", "photos"]


def test_leftovers_of_a_killed_run_are_cleared(tmp_path):
    (tmp_path / ".photos.partial" / "train").mkdir(parents=True)
    (tmp_path / ".photos.old").mkdir()
    script.prepare(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "digits", "photos"]


def test_two_runs_at_once_make_one_folder(tmp_path):
    command = [sys.executable, str(SCRIPT), "--out", str(tmp_path)]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = sorted(run.communicate()[0] for run in runs)
    assert [run.returncode for run in runs] == [0, 0]
    assert said == [f"{tmp_path}: nothing to do\n", f"{tmp_path}: wrote photos and digits\n"]
    script.check(tmp_path)


def test_neither_frameworks_nor_the_wheels_code_are_imported(tmp_path):
    program = (
        "import runpy, sys\n"
        f"sys.argv = ['prepare.py', '--out', {str(tmp_path)!r}]\n"
        "try:\n"
        f"    runpy.run_path({str(SCRIPT)!r}, run_name='__main__')\n"
        "except SystemExit as end:\n"
        "    assert end.code == 0, end.code\n"
        "unwanted = {'torch', 'paddle', 'twinalign', 'skimage', 'sklearn', 'pooch', 'urllib.request'}\n"
        "found = sorted(unwanted & set(sys.modules))\n"
        "assert not found, found\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # And the check can fail.
    done = subprocess.run([sys.executable, "-c", "import urllib.request\n" + program], capture_output=True, text=True)
    assert "AssertionError: ['urllib.request']" in done.stderr


# --- what can be wrong outside -------------------------------------------------------------------------------------


def test_a_missing_wheel_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(script.importlib.util, "find_spec", lambda name: None)
    assert script.main(["--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        "error: skimage: not installed; the wheel of scikit-image carries data/astronaut.png: "
        "pip install 'twinalign[example]'\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def wheels_with(tmp_path: Path, monkeypatch) -> Path:
    """A copy of scikit-image's pictures in place of the installed ones."""
    package = tmp_path / "skimage"
    shutil.copytree(script.wheel_file("skimage/data/astronaut.png").parent, package / "data")
    (package / "__init__.py").touch()
    installed = script.importlib.util.find_spec

    def find_spec(name: str):
        if name != "skimage":
            return installed(name)
        return importlib.util.spec_from_file_location(
            name, package / "__init__.py", submodule_search_locations=[str(package)]
        )

    monkeypatch.setattr(script.importlib.util, "find_spec", find_spec)
    return package / "data"


def test_another_version_of_a_wheel_is_named(tmp_path, monkeypatch, capsys):
    pictures = wheels_with(tmp_path, monkeypatch)
    with Image.open(pictures / "coffee.png") as image:
        image.crop((0, 0, 500, 300)).save(pictures / "coffee.png")
    assert script.main(["--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == (
        f"error: {pictures / 'coffee.png'}: not the file that lite_data/checksums.json lists; "
        "install the versions in uv.lock\n"
    )
    (pictures / "coffee.png").unlink()
    assert script.main(["--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == (
        f"error: {pictures / 'coffee.png'}: missing from scikit-image; reinstall it from its wheel\n"
    )


def test_a_folder_that_cannot_be_written_is_named(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert script.main(["--out", str(tmp_path / "file")]) == 2
    error = capsys.readouterr().err
    assert error == f"error: {tmp_path / 'file'}: cannot write here (File exists); give another folder with --out\n"


def test_the_check_bears_another_jpeg_encoder_but_no_other_picture(copy):
    checksums = json.loads(script.CHECKSUMS.read_text())
    path = copy / "photos" / "train" / "cat" / "1.jpg"
    with Image.open(path) as image:
        image.load()
    image.save(path, quality=80, subsampling="4:4:4")
    script.check_photos(copy / "photos", checksums)
    image.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(path, quality=92)
    with pytest.raises(script.InputError, match=r"^train/cat/1.jpg: means not as in lite_data/checksums.json; check"):
        script.check_photos(copy / "photos", checksums)


def test_the_check_holds_png_to_the_pixel(copy):
    checksums = json.loads(script.CHECKSUMS.read_text())
    path = copy / "photos" / "train" / "cat" / "0.png"
    with Image.open(path) as image:
        pixels = np.array(image)
    Image.fromarray(pixels).save(path, compress_level=1)  # other bytes, the same pixels
    script.check_photos(copy / "photos", checksums)
    pixels[5, 7, 1] ^= 1
    Image.fromarray(pixels).save(path)
    with pytest.raises(script.InputError, match=r"^train/cat/0.png: pixels not as in lite_data/checksums.json; check"):
        script.check_photos(copy / "photos", checksums)


def test_the_check_holds_digits_to_the_pixel(prepared, tmp_path):
    shutil.copytree(prepared / "digits", tmp_path / "digits")
    checksums = json.loads(script.CHECKSUMS.read_text())
    script.check_digits(tmp_path / "digits", checksums)
    path = next((tmp_path / "digits" / "val").rglob("*.png"))
    with Image.open(path) as image:
        pixels = np.array(image)
    pixels[0, 0] ^= 1
    Image.fromarray(pixels).save(path)
    with pytest.raises(script.InputError, match=r"digits not as in lite_data/checksums.json; check this Pillow$"):
        script.check_digits(tmp_path / "digits", checksums)


def test_command_line_says_what_it_did(prepared, capsys):
    assert script.main(["--out", str(prepared)]) == 0
    assert capsys.readouterr().out == f"{prepared}: nothing to do\n"
    assert script.main(["--out", str(prepared), "--check"]) == 0
    assert capsys.readouterr().out == f"{prepared}: photos and digits are in place and right\n"


def test_digit_source_is_read_as_the_csv_says(monkeypatch, tmp_path):
    """A made-up digit goes to the folder of its label."""
    row = ",".join(["16.0"] + ["0.0"] * 63 + ["7"])
    monkeypatch.setattr(script, "read_source", lambda *_: gzip.compress((row + "\n").encode()))
    script.write_digits(tmp_path, {})
    with Image.open(tmp_path / "train" / "7" / "0000.png") as image:
        pixels = np.asarray(image)
    assert pixels[0, 0] == 255
    assert pixels[:, 8:].max() == pixels[8:].max() == 0
