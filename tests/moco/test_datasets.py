"""Published data sets in their published forms, against torchvision's own readers of them."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.io
import torchvision
from PIL import Image

from moco_common.data.datasets import open_pictures


class Python2Pickler(pickle._Pickler):
    """Writes text and bytes as Python 2 wrote its strings, which CIFAR's files hold."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_string(self, value: Any) -> None:
        data = value if isinstance(value, bytes) else value.encode("latin1")
        self.write(pickle.BINSTRING + struct.pack("<i", len(data)) + data)
        self.memoize(value)

    dispatch[str] = dispatch[bytes] = save_string


def write_pickle(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        Python2Pickler(file, protocol=2).dump(content)
    path.write_bytes(path.read_bytes().replace(b"numpy._core", b"numpy.core"))


def cifar(root: Path, dataset: str) -> Path:
    random = np.random.RandomState(0)

    def batch(count: int, key: str, classes: int) -> dict[str, Any]:
        pixels = random.randint(0, 256, (count, 3072)).astype("uint8")
        return {"data": pixels, key: random.randint(0, classes, count).tolist(), "batch_label": "one"}

    if dataset == "cifar10":
        folder = root / "cifar-10-batches-py"
        for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
            write_pickle(folder / name, batch(4, "labels", 10))
        write_pickle(folder / "batches.meta", {"label_names": [f"thing{number}" for number in range(10)]})
    else:
        folder = root / "cifar-100-python"
        for name, count in (("train", 7), ("test", 3)):
            write_pickle(folder / name, batch(count, "fine_labels", 100))
        write_pickle(folder / "meta", {"fine_label_names": [f"thing{number}" for number in range(100)]})
    return folder


def save_picture(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    array = np.random.RandomState(seed).randint(0, 256, (20 + seed, 24, 3), dtype="uint8")
    Image.fromarray(array).save(path)


def flowers(root: Path) -> Path:
    folder = root / "flowers-102"
    for number in range(1, 10):
        save_picture(folder / "jpg" / f"image_{number:05d}.jpg", number)
    sets = {"trnid": [[3, 1]], "valid": [[9, 2]], "tstid": [[4, 8, 5, 6, 7]]}
    scipy.io.savemat(folder / "setid.mat", {name: np.array(value, dtype="uint16") for name, value in sets.items()})
    scipy.io.savemat(folder / "imagelabels.mat", {"labels": np.array([[2, 1, 3, 1, 2, 3, 3, 2, 1]], dtype="uint8")})
    return folder


def pets(root: Path) -> Path:
    folder = root / "oxford-iiit-pet"
    breeds = {"Abyssinian": 1, "american_bulldog": 2, "Bengal": 3}
    lines: dict[str, list[str]] = {"trainval": [], "test": []}
    for split, numbers in (("trainval", (1, 12)), ("test", (7,))):
        for breed, place in breeds.items():
            for number in numbers:
                save_picture(folder / "images" / f"{breed}_{number}.jpg", number)
                lines[split].append(f"{breed}_{number} {place} 1 1\n")
        (folder / "annotations").mkdir(exist_ok=True)
        (folder / "annotations" / f"{split}.txt").write_text("".join(lines[split]))
    return folder


def write(root: Path, dataset: str) -> Path:
    return {"flowers": flowers, "pets": pets}.get(dataset, lambda place: cifar(place, dataset))(root)


def torchvisions(root: Path, dataset: str, split: str, monkeypatch) -> list[tuple[Image.Image, int]]:
    """What torchvision reads, its checks of the published files' checksums left out."""
    datasets = torchvision.datasets
    is_train = split == "train"
    monkeypatch.setattr(datasets.CIFAR10, "_check_integrity", lambda self: True)
    monkeypatch.setattr(datasets.cifar, "check_integrity", lambda *arguments: True)
    monkeypatch.setattr(datasets.Flowers102, "_check_integrity", lambda self: True)
    if dataset == "cifar10":
        return list(datasets.CIFAR10(root, train=is_train))
    if dataset == "cifar100":
        return list(datasets.CIFAR100(root, train=is_train))
    if dataset == "pets":
        return list(datasets.OxfordIIITPet(root, split="trainval" if is_train else "test"))
    found: list[tuple[Image.Image, int]] = []
    for name in ("train", "val") if is_train else ("test",):
        found += list(datasets.Flowers102(root, split=name))
    return found


@pytest.mark.parametrize("split", ["train", "val"])
@pytest.mark.parametrize("dataset", ["cifar10", "cifar100", "flowers", "pets"])
def test_pictures_and_labels_are_those_that_torchvision_reads(
    tmp_path: Path, monkeypatch, dataset: str, split: str
) -> None:
    folder = write(tmp_path, dataset)
    expected = torchvisions(tmp_path, dataset, split, monkeypatch)
    # Earlier torchvisions number the flowers from 1.
    first = 1 if dataset == "flowers" and min(label for _, label in expected) == 1 else 0
    for place, name in ((tmp_path, None), (folder, None), (tmp_path, dataset), (folder, dataset)):
        pictures = open_pictures(place, split, name)
        assert [label for _, label in pictures.samples] == [label - first for _, label in expected]
        for index, (image, _) in enumerate(expected):
            assert np.array_equal(np.asarray(pictures.load(index)), np.asarray(image.convert("RGB")))


def test_classes_have_their_names(tmp_path: Path) -> None:
    assert open_pictures(pets(tmp_path / "a"), "val").classes == ["Abyssinian", "american_bulldog", "Bengal"]
    assert open_pictures(cifar(tmp_path / "b", "cifar100"), "train").classes[99] == "thing99"
    assert open_pictures(flowers(tmp_path / "c"), "train").classes == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("dataset", "missing", "source"),
    [
        ("cifar10", "data_batch_4", "https://www.cs.toronto.edu/~kriz/cifar.html"),
        ("cifar100", "meta", "https://www.cs.toronto.edu/~kriz/cifar.html"),
        ("flowers", "setid.mat", "https://www.robots.ox.ac.uk/~vgg/data/flowers/102/"),
        ("flowers", "jpg/image_00009.jpg", "https://www.robots.ox.ac.uk/~vgg/data/flowers/102/"),
        ("pets", "annotations/trainval.txt", "https://www.robots.ox.ac.uk/~vgg/data/pets/"),
    ],
)
def test_a_missing_file_is_named_with_its_source(
    twin, tmp_path: Path, capsys, dataset: str, missing: str, source: str
) -> None:
    folder = write(tmp_path, dataset)
    (folder / missing).unlink()
    arguments = ["knn", str(tmp_path), "--arch", "vit_digits", "--dataset", dataset, "--workers", "0"]
    assert twin.module("__main__").main(arguments) == 2
    expected = f"error: {folder / missing}: no such file or folder; it is part of the archives at {source}\n"
    assert capsys.readouterr().err == expected


def test_a_pickle_that_calls_something_is_refused_by_name(tmp_path: Path) -> None:
    class Calls:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "called",)

    folder = cifar(tmp_path, "cifar10")
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [Calls()]}, protocol=2))
    with pytest.raises(ValueError, match=r"batches\.meta: cannot be read \(its pickle asks for \S+getattr,"):
        open_pictures(tmp_path, "train")
    assert not (tmp_path / "called").exists()


def test_numbers_that_are_not_in_the_file_do_not_become_pixels(tmp_path: Path) -> None:
    """`numpy.ndarray(shape, type)` is an array over whatever the memory held."""
    folder = cifar(tmp_path, "cifar10")
    made = b"\x80\x02}q\x00(X\x04\x00\x00\x00datacnumpy\nndarray\n(K\x01M\x00\x0c\x86X\x02\x00\x00\x00u1tR"
    (folder / "data_batch_2").write_bytes(made + b"X\x06\x00\x00\x00labels]K\x00au.")
    with pytest.raises(ValueError, match=r"data_batch_2: cannot be read \(its pickle calls numpy\.ndarray, which"):
        open_pictures(tmp_path, "train")


@pytest.mark.parametrize("damage", ["cut", "labels", "shape"])
def test_a_damaged_batch_is_one_line(tmp_path: Path, damage: str) -> None:
    folder = cifar(tmp_path, "cifar10")
    path = folder / "data_batch_2"
    pixels = np.zeros((2, 3072), dtype="uint8")
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-40])
    elif damage == "labels":
        write_pickle(path, {"data": pixels, "labels": [3, 10]})
    else:
        write_pickle(path, {"data": pixels, "labels": [3]})
    with pytest.raises(ValueError, match=r"^\S+data_batch_2: .* unpack the publisher's archive anew$") as raised:
        open_pictures(tmp_path, "train")
    assert "\n" not in str(raised.value)


def test_programs_take_a_published_data_set(twin, tmp_path: Path, capsys) -> None:
    cifar(tmp_path, "cifar10")
    text = "-a vit_digits -b 8 --epochs 2 --lr 0.01 --warmup-epochs 1 --device cpu --workers 0"
    output = tmp_path / "out"
    assert twin.module("__main__").main(["finetune", str(tmp_path), *text.split(), "--output", str(output)]) == 0
    assert "[epoch 1] top-1: " in capsys.readouterr().out
    arguments = [str(tmp_path), "-a", "vit_digits", "--workers", "0", "--device", "cpu", "-k", "3"]
    assert twin.module("__main__").main(["knn", *arguments]) == 0
    assert "of 4 pictures" in capsys.readouterr().out
