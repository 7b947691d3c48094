"""Image folders and loaders of both twins: torchvision's listing and decoding, one result for any workers and ranks."""

from __future__ import annotations

import importlib
import shutil
import time
from pathlib import Path

import numpy as np
import paddle
import pytest
import torch
import torchvision
from PIL import Image

from moco_common.data import folders, loaders
from moco_common.images.rand_augment import parse_policy
from moco_common.images.training_augmentation import TrainingAugmentation

TWINS = ("moco_ref", "moco_paddle")
TENSORS = {"moco_ref": torch.Tensor, "moco_paddle": paddle.Tensor}


@pytest.fixture(params=TWINS)
def data(request):
    return importlib.import_module(f"{request.param}.data")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Ten pictures in three classes: JPEG, PNG, grayscale, palette, EXIF orientation, transparency, a sub-folder."""
    root = tmp_path_factory.mktemp("pictures")
    generator = np.random.RandomState(0)
    for number in range(10):
        name, suffix = ("ape", "Bee", "cat")[number % 3], ("jpg", "png")[number % 2]
        place = root / name / ("deep" if number == 9 else "")
        place.mkdir(parents=True, exist_ok=True)
        height, width = generator.randint(30, 60, 2)
        coarse = generator.randint(0, 256, (5, 6, 3)).astype(np.uint8)
        image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
        options = {}
        if number == 1:
            image = image.convert("P", palette=Image.Palette.ADAPTIVE, colors=32)
        if number == 3:
            image = image.convert("RGBA")
            image.putalpha(100)
        if number == 4:
            image = image.convert("L")
        if number == 6:
            options["exif"] = Image.Exif()
            options["exif"][0x0112] = 6
        image.save(place / f"{number}.{suffix}", **options)
    (root / "ape" / "notes.txt").write_text("not a picture")
    (root / "beside.png").write_bytes(b"not in a class")
    return root


@pytest.fixture
def damaged(folder, tmp_path) -> Path:
    """The same folder with two neighbouring pictures that do not decode: places 1 and 2 of the listing."""
    root = tmp_path / "damaged"
    shutil.copytree(folder, root)
    first, second = [path for path, _ in folders.ImageFolder(root).samples][1:3]
    first.write_bytes(first.read_bytes()[:80])
    second.write_text("hello")
    return root


def arrays(loader) -> list[list[np.ndarray]]:
    return [[tensor.numpy() for tensor in batch] for batch in loader]


def assert_equal(first: list, second: list) -> None:
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)
            assert a.dtype == b.dtype


def test_listing_is_torchvisions_and_paddles(folder):
    ours = folders.ImageFolder(folder)
    theirs = torchvision.datasets.ImageFolder(folder)
    paddles = paddle.vision.datasets.DatasetFolder(str(folder))
    samples = [(str(path), label) for path, label in ours.samples]
    assert ours.classes == theirs.classes == list(paddles.classes) == ["Bee", "ape", "cat"]
    assert len(ours) == 10
    assert samples == theirs.samples == paddles.samples


def test_pictures_decode_as_torchvisions_loader_does(folder):
    for path, _ in folders.ImageFolder(folder).samples:
        ours, theirs = folders.load_image(path), torchvision.datasets.folder.pil_loader(str(path))
        assert ours.mode == "RGB"
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


def test_exif_orientation_is_not_applied(folder):
    path = folder / "ape" / "6.jpg"
    with Image.open(path) as image:
        assert image.getexif()[0x0112] == 6
        assert folders.load_image(path).size == image.size


def test_batches_are_the_frameworks_tensors(data, folder):
    tensor = TENSORS[data.__name__.partition(".")[0]]
    view1, view2, index = next(iter(data.build_pretraining_loader(folder, 4, image_size=16)))
    assert all(isinstance(one, tensor) for one in (view1, view2, index))
    assert tuple(view1.shape) == tuple(view2.shape) == (4, 3, 16, 16)
    assert view1.numpy().dtype == np.float32
    assert index.numpy().dtype == np.int64
    images, labels = next(iter(data.build_evaluation_loader(folder, 4, image_size=16)))
    assert all(isinstance(one, tensor) for one in (images, labels))
    assert (tuple(images.shape), tuple(labels.shape)) == ((4, 3, 16, 16), (4,))
    assert labels.numpy().dtype == np.int64


@pytest.mark.parametrize("workers", [0, 2])
def test_both_twins_load_the_same_whatever_the_workers(folder, workers):
    def load(name: str, workers: int) -> tuple[list, list]:
        data = importlib.import_module(f"{name}.data")
        pretraining = data.build_pretraining_loader(folder, 4, image_size=24, seed=9, workers=workers, crop_min=0.2)
        views = []
        for epoch in (0, 3):
            pretraining.set_epoch(epoch)
            views += arrays(pretraining)
        return views, arrays(data.build_evaluation_loader(folder, 4, image_size=24, workers=workers))

    expected = load("moco_ref", 0)
    assert [len(part) for part in expected] == [4, 3]  # two epochs of two whole batches; three with the tail
    for name in TWINS:
        for ours, theirs in zip(load(name, workers), expected, strict=True):
            assert_equal(ours, theirs)


def test_both_twins_see_the_same_augmented_pixels(folder):
    def load(name: str) -> list:
        augmentation = TrainingAugmentation(rand_augment=parse_policy("rand-m9-mstd0.5-inc1"), is_bicubic=True)
        build = importlib.import_module(f"{name}.data").build_training_loader
        loader = build(folder, 4, 32, seed=3, augmentation=augmentation)
        loader.set_epoch(1)
        return arrays(loader)

    assert_equal(*map(load, TWINS))


def test_a_view_is_the_transform_of_its_picture_at_its_address(data, folder):
    loader = data.build_pretraining_loader(folder, 5, image_size=24, seed=4)
    loader.set_epoch(6)
    pictures = torchvision.datasets.ImageFolder(folder)
    transform = loader.dataset.two_views
    seen = []
    for view1, view2, indices in arrays(loader):
        for first, second, index in zip(view1, view2, indices, strict=True):
            expected = transform(pictures[index][0], 6, int(index))
            np.testing.assert_array_equal(first, expected[0])
            np.testing.assert_array_equal(second, expected[1])
            seen.append(int(index))
    assert sorted(seen) == list(range(10))


def test_ranks_together_load_what_one_process_loads(data, folder):
    alone = arrays(data.build_pretraining_loader(folder, 4, image_size=16, seed=1))
    ranks = [
        arrays(data.build_pretraining_loader(folder, 4, image_size=16, seed=1, rank=rank, world_size=2))
        for rank in range(2)
    ]
    joined = [[np.concatenate(pair) for pair in zip(*parts, strict=True)] for parts in zip(*ranks, strict=True)]
    assert_equal(joined, alone)
    whole = arrays(data.build_evaluation_loader(folder, 3, image_size=16))
    parts = [arrays(data.build_evaluation_loader(folder, 3, 16, rank=rank, world_size=3)) for rank in range(3)]
    flat = [batch for part in parts for batch in part]
    for place in range(2):
        np.testing.assert_array_equal(
            np.concatenate([batch[place] for batch in flat]), np.concatenate([batch[place] for batch in whole])
        )


def test_an_epoch_resumes_in_its_middle(data, folder):
    loader = data.build_pretraining_loader(folder, 2, image_size=16)
    loader.set_epoch(1)
    whole = arrays(loader)
    loader.set_epoch(1, start=3)
    assert_equal(arrays(loader), whole[3:])
    assert len(loader) == 5


# --- pictures that do not decode -----------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("build", ["build_pretraining_loader", "build_evaluation_loader"])
def test_a_bad_picture_is_refused_by_name_in_one_line(data, damaged, build, workers):
    bad = [str(path) for path, _ in folders.ImageFolder(damaged).samples[1:3]]
    loader = getattr(data, build)(damaged, 5, image_size=16, workers=workers)
    with pytest.raises(folders.BadImageError) as caught:
        list(loader)
    message = str(caught.value)
    assert any(message.startswith(f"{path}: cannot be read as an image (") for path in bad)
    assert message.endswith("); mend or remove it, or leave such out: --on-bad-image skip")
    assert "\n" not in message


@pytest.mark.parametrize("workers", [0, 2])
def test_pretraining_skips_bad_pictures_and_lists_them(data, damaged, folder, workers):
    loader = data.build_pretraining_loader(damaged, 5, 16, seed=2, workers=workers, on_bad_image="skip")
    batches = arrays(loader)
    samples = loader.dataset.folder.samples
    assert sorted(loader.bad_images) == sorted(path for path, _ in samples[1:3])
    shown = np.concatenate([indices for _, _, indices in batches])
    assert sorted(shown) == [0, 3, 3, 3, 4, 5, 6, 7, 8, 9]
    # Good pictures are what they are without bad ones about; the replacement has the draws of the place it fills.
    asked = np.concatenate([indices for _, _, indices in arrays(data.build_pretraining_loader(folder, 5, 16, seed=2))])
    np.testing.assert_array_equal(shown, np.where((asked == 1) | (asked == 2), 3, asked))
    views = np.concatenate([view1 for view1, _, _ in batches])
    for view, index, place in zip(views, shown, asked, strict=True):
        image = folders.load_image(samples[index][0])
        np.testing.assert_array_equal(view, loader.dataset.two_views(image, 0, int(place))[0])
    list(loader)
    assert len(loader.bad_images) == 2  # a second epoch lists nothing twice


@pytest.mark.parametrize("workers", [0, 2])
def test_evaluation_leaves_bad_pictures_out_and_lists_them(data, damaged, folder, workers):
    for batch_size in (1, 4):  # with one a batch, whole batches fall out
        loader = data.build_evaluation_loader(damaged, batch_size, 16, workers=workers, on_bad_image="skip")
        found = arrays(loader)
        whole = arrays(data.build_evaluation_loader(folder, 10, 16))[0]
        good = [0, *range(3, 10)]
        np.testing.assert_array_equal(np.concatenate([images for images, _ in found]), whole[0][good])
        np.testing.assert_array_equal(np.concatenate([labels for _, labels in found]), whole[1][good])
        assert sorted(loader.bad_images) == sorted(path for path, _ in loader.dataset.folder.samples[1:3])


@pytest.mark.timeout(60)  # without its remedy the loader waits for ever
def test_paddles_loader_survives_an_answer_that_overtakes_its_own_entry(folder, monkeypatch):
    data = importlib.import_module("moco_paddle.data")
    missed = []

    class SlowlyEntered(data._ExpectedTasks):
        def __setitem__(self, number, entry):
            if len(entry) == 1:
                time.sleep(0.05)
            super().__setitem__(number, entry)

        def __missing__(self, number):
            missed.append(number)
            return super().__missing__(number)

    monkeypatch.setattr(data, "_ExpectedTasks", SlowlyEntered)
    read = loaders.EvaluationDataset.__getitem__
    monkeypatch.setattr(
        loaders.EvaluationDataset,
        "__getitem__",
        lambda self, address: (time.sleep(0.3 * (address[1] == 4)), read(self, address))[1],
    )
    labels = np.concatenate([labels for _, labels in arrays(data.build_evaluation_loader(folder, 1, 16, workers=2))])
    assert labels.tolist() == [label for _, label in folders.ImageFolder(folder).samples]
    assert missed  # or the test would show nothing


def test_nothing_but_bad_pictures_is_an_error_even_when_skipping(data, tmp_path):
    for number in range(3):
        path = tmp_path / "class" / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_text("no picture")
    loader = data.build_pretraining_loader(tmp_path, 2, 16, on_bad_image="skip")
    with pytest.raises(folders.BadImageError, match=r": none of its 3 pictures can be read; check the data$"):
        list(loader)
    assert len(loader.bad_images) == 3


def test_a_picture_that_can_be_read_again_is_still_refused(data, damaged, monkeypatch):
    path, _ = folders.ImageFolder(damaged).samples[1]
    loader = data.build_evaluation_loader(damaged, 2, 16)
    batches = iter(loader)
    read = folders.load_image

    def mended(asked):
        return Image.new("RGB", (9, 9)) if asked == path and monkeypatch.undo() is None else read(asked)

    def broken(asked):
        monkeypatch.setattr(folders, "load_image", mended)
        raise folders.BadImageError("a passing fault")

    monkeypatch.setattr(folders, "load_image", broken)
    with pytest.raises(folders.BadImageError, match=r": could not be read a moment ago, and can be now; run again$"):
        next(batches)


@pytest.mark.parametrize("suffix", ["jpg", "png", "bmp", "tiff", "webp"])
@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's remarks on damaged TIFF
def test_damage_of_any_kind_is_a_bad_image_or_still_a_picture(tmp_path, suffix):
    """Cut and overwritten files: whatever Pillow raises, only `BadImageError` comes out."""
    coarse = np.random.RandomState(0).randint(0, 256, (8, 9, 3)).astype(np.uint8)
    path = tmp_path / f"picture.{suffix}"
    Image.fromarray(coarse).resize((60, 50)).save(path)
    intact = path.read_bytes()
    generator = np.random.RandomState(1)
    messages = []
    for trial in range(150):
        broken = bytearray(intact[: generator.randint(0, len(intact))] if trial % 2 else intact)
        for place in generator.randint(0, max(1, min(len(broken), 200)), generator.randint(1, 6)):
            if broken:
                broken[place] = generator.randint(0, 256)
        path.write_bytes(bytes(broken))
        try:
            assert folders.load_image(path).mode == "RGB"
        except folders.BadImageError as error:
            messages.append(str(error))
    assert len(messages) > 20
    assert all(message.startswith(f"{path}: cannot be read as an image (") for message in messages)
    assert not any("\n" in message for message in messages)


# --- wrong use -----------------------------------------------------------------------------------------------------


def test_wrong_folders_are_refused_in_one_line(data, tmp_path):
    with pytest.raises(
        folders.DataFolderError, match=r"nowhere: no such folder; give the folder that holds one sub-folder a"
    ):
        data.build_pretraining_loader(tmp_path / "nowhere", 4)
    with pytest.raises(
        folders.DataFolderError, match=r": holds no sub-folders; give the folder that holds one sub-folder a"
    ):
        data.build_evaluation_loader(tmp_path, 4)
    (tmp_path / "empty").mkdir()
    with pytest.raises(folders.DataFolderError, match=r"empty: holds no pictures; remove the folder or fill it$"):
        data.build_evaluation_loader(tmp_path, 4)


def test_wrong_options_are_refused_in_one_line(data, folder):
    with pytest.raises(ValueError, match=r"^on_bad_image: 'ignore' is not known; give 'refuse' or 'skip'$"):
        data.build_evaluation_loader(folder, 4, on_bad_image="ignore")
    with pytest.raises(ValueError, match=r"^batch_size: 12 is more than the 10 samples; give at most 10$"):
        data.build_pretraining_loader(folder, 12)
