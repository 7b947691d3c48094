"""Everything that can be wrong with what a user gives: one line that names file, key and remedy."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import json
import os
import pickle
import resource
import struct
import subprocess
import sys
import zipfile

import numpy as np
import paddle
import pytest
import torch

from twinalign.conversion import writers
from twinalign.conversion.checkpoint import read_checkpoint
from twinalign.conversion.convert_file import convert_checkpoint
from twinalign.conversion.model_factory import load_factory
from twinalign.conversion.options import Options, parse_pairs, read_rules
from twinalign.errors import InputError
from twinalign.files.reader import read_tree
from twinalign.terminal import show


@pytest.fixture
def checkpoint(in_process, tmp_path):
    model = load_factory(in_process("torch_mlp", "paddle_mlp")["ref"])[0]()
    torch.save(model.state_dict(), tmp_path / "a.pth")
    return tmp_path / "a.pth"


@pytest.fixture
def options(in_process):
    return Options(factories=in_process("torch_mlp", "paddle_mlp"))


def message(checkpoint, options, target=None):
    target = target or checkpoint.with_name("out.pdparams")
    before = target.read_bytes() if target.is_file() else None
    with pytest.raises(InputError) as error:
        convert_checkpoint(checkpoint, target, options)
    assert (target.read_bytes() if target.is_file() else None) == before, "the target was touched"
    if target.parent.is_dir():
        assert not [path for path in target.parent.iterdir() if path.name.endswith(".part")]
    assert "\n" not in str(error.value)
    return str(error.value).replace(str(checkpoint.parent), "DIR")


def test_missing_file(checkpoint, options):
    assert message(checkpoint.with_name("none.pth"), options) == "DIR/none.pth: No such file or directory"


@pytest.mark.parametrize("name", ["pipe.npz", "model.safetensors.index.json"])
def test_a_pipe_is_refused_and_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(InputError, match="it is not a regular file"):
        read_checkpoint(tmp_path / name)


def test_truncated_zip(checkpoint, options):
    checkpoint.write_bytes(checkpoint.read_bytes()[:-200])
    assert message(checkpoint, options) == (
        "DIR/a.pth: it starts like a zip archive but is not one (cut short, or bytes follow its end)"
    )


def test_truncated_safetensors(checkpoint, options):
    path = checkpoint.with_name("a.safetensors")
    writers.write_safetensors(path, {"w": np.zeros(100, "float32")}, {})
    path.write_bytes(path.read_bytes()[:-4])
    assert message(path, options).startswith("DIR/a.safetensors: 'w' lies at bytes 0 to 400 of 396")


def test_truncated_pdparams(checkpoint, options):
    path = checkpoint.with_name("a.pdparams")
    writers.write_paddle(path, {"w": np.zeros(100, "float32")})
    path.write_bytes(path.read_bytes()[:200])
    assert message(path, options, checkpoint.with_name("o.pth")).startswith("DIR/a.pdparams: it is cut short")


class Hostile:
    def __reduce__(self):
        import os

        return os.mkdir, ("harmed",)


@pytest.mark.parametrize("wrap", [lambda value: value, lambda value: {"state_dict": {"w": value}}])
def test_hostile_pdparams_runs_nothing(checkpoint, options, wrap, monkeypatch):
    monkeypatch.chdir(checkpoint.parent)
    path = checkpoint.with_name("a.pdparams")
    path.write_bytes(pickle.dumps(wrap(Hostile())))
    assert message(path, options, checkpoint.with_name("o.pth")) == (
        "DIR/a.pdparams: its pickle asks for posix.mkdir, which files of arrays do not use; nothing was run. "
        "Save plain arrays or a state_dict instead"
    )
    assert not checkpoint.with_name("harmed").exists()


def test_hostile_pth_runs_nothing(checkpoint, options, monkeypatch):
    monkeypatch.chdir(checkpoint.parent)
    with zipfile.ZipFile(checkpoint, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"w": Hostile()}, 2))
        archive.writestr("archive/version", "3\n")
    assert "its pickle asks for posix.mkdir" in message(checkpoint, options)
    assert not checkpoint.with_name("harmed").exists()


def test_a_pickled_module_is_refused(checkpoint, options):
    torch.save(torch.nn.Linear(2, 2), checkpoint)
    assert "its pickle asks for torch.nn.modules.linear.Linear" in message(checkpoint, options)


def test_random_bytes(checkpoint, options):
    checkpoint.write_bytes(b"not a checkpoint at all")
    assert message(checkpoint, options).startswith("DIR/a.pth: its content is not")


def test_empty_file(checkpoint, options):
    checkpoint.write_bytes(b"")
    assert message(checkpoint, options) == "DIR/a.pth: it is empty"


def test_checkpoint_without_weights(checkpoint, options):
    torch.save({"epoch": 3, "arch": "x"}, checkpoint)
    assert message(checkpoint, options) == (
        "DIR/a.pth: no state dict was found in it; it has 'epoch', 'arch': name the right one with --entry"
    )


def test_unknown_entry(checkpoint, in_process):
    options = Options(factories=in_process("torch_mlp", "paddle_mlp"), entry="teacher")
    torch.save({"student": torch.load(checkpoint, weights_only=True)}, checkpoint)
    assert message(checkpoint, options) == "DIR/a.pth: it has no entry 'teacher'; it has 'student'"


def test_wrong_model(checkpoint, in_process):
    options = Options(factories=in_process("torch_mlp(width=6)", "paddle_mlp(width=6)"))
    assert message(checkpoint, options) == (
        "DIR/a.pth does not belong to the reference model: '0.weight' has shape [4, 3], the model has [6, 3]; "
        "'0.bias' has shape [4], the model has [6]; '1.weight' has shape [4], the model has [6]; and 5 more. "
        "Give the model that wrote it. All 8 are in DIR/out.unmatched.txt"
    )


def test_models_that_do_not_fit_each_other(checkpoint, in_process):
    options = Options(factories=in_process("torch_mlp", "paddle_mlp(width=6)"))
    assert message(checkpoint, options) == (
        "the two models are different networks: `0` has weight 4×3 against 6×3, bias 4 against 6 in the paddle model; "
        "`1` has weight 4 against 6, running_var 4 against 6, running_mean 4 against 6, bias 4 against 6 in the paddle "
        "model; `2` has weight 4×4 against 6×6, bias 4 against 6 in the paddle model. Allow by name what may lack a "
        "partner (--allow-missing, --allow-unexpected)"
    )


def test_a_layer_that_one_model_lacks(checkpoint, in_process):
    options = Options(factories=in_process("torch_mlp", "PaddleFused"))
    assert message(checkpoint, options).startswith(
        "the two models are different networks: only the reference model has "
    )


def test_missing_key_in_the_checkpoint(checkpoint, options):
    state = torch.load(checkpoint, weights_only=True)
    del state["2.bias"]
    torch.save(state, checkpoint)
    assert message(checkpoint, options) == (
        "DIR/a.pth does not belong to the reference model: missing '2.bias'. Give the model that wrote it, or allow "
        "keys by name (--allow-missing)"
    )


def test_more_keys_than_a_message_holds_are_in_a_file(checkpoint, options, tmp_path):
    state = {f"extra{number}": torch.zeros(1) for number in range(4)}
    torch.save(state | torch.load(checkpoint, weights_only=True), tmp_path / "more.pth")
    with pytest.raises(InputError, match="unexpected 'extra2'; and 1 more") as error:
        convert_checkpoint(tmp_path / "more.pth", tmp_path / "out.pdparams", options)
    assert str(error.value).endswith(f". All 4 are in {tmp_path / 'out.unmatched.txt'}")
    assert (tmp_path / "out.unmatched.txt").read_text().splitlines() == [f"unexpected 'extra{n}'" for n in range(4)]


def test_missing_and_unexpected_keys_pass_when_allowed_by_name(checkpoint, in_process, capsys):
    state = torch.load(checkpoint, weights_only=True)
    del state["2.bias"]
    torch.save({**state, "extra.weight": torch.zeros(2)}, checkpoint)
    options = Options(
        factories=in_process("torch_mlp", "paddle_mlp"), allow_missing=("2.*",), allow_unexpected=("extra.*",)
    )
    report = convert_checkpoint(checkpoint, checkpoint.with_name("o.pdparams"), options)
    reasons = {(e.source, e.target): e.reason for e in report.ledger.entries if "dropped" in e.actions}
    assert reasons[(), "2.bias"] == "allowed by name to be missing"
    assert reasons[("extra.weight",), None] == "allowed by name; the model does not have it"
    show(report, quiet=True)
    written = paddle.load(str(checkpoint.with_name("o.pdparams")))
    assert f" {len(written)} out: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("factory", "expected"),
    [
        ("nowhere", "'nowhere' is not a model: give module:factory or path/to/file.py:factory"),
        ("no_such_module:f", "'no_such_module:f' cannot be imported: No module named 'no_such_module'"),
        ("none.py:f", "'none.py:f' cannot be imported: there is no none.py"),
        ("torch.nn:NoSuchLayer", "'torch.nn:NoSuchLayer': torch.nn has no NoSuchLayer"),
        ("torch.nn:Linear(2, x)", "'torch.nn:Linear(2, x)': arguments must be literals"),
        ("torch.nn:Linear(in_features=open('x'))", None),
    ],
)
def test_factories(checkpoint, in_process, factory, expected):
    expected = expected or f"{factory!r}: arguments must be literals"
    assert message(checkpoint, Options(factories={"ref": factory})) == expected


def test_a_factory_that_makes_no_model(checkpoint, in_process):
    factories = in_process("no_model", "paddle_mlp")
    assert message(checkpoint, Options(factories=factories)).endswith("made a int, which is not a torch model")


def test_same_file(checkpoint, options):
    assert message(checkpoint, options, checkpoint) == "DIR/a.pth: source and target are the same file"


def test_missing_folder(checkpoint, options):
    target = checkpoint.parent / "no" / "o.pdparams"
    assert message(checkpoint, options, target) == "DIR/no: there is no such folder; create it first"


def test_direction_that_nothing_tells(checkpoint):
    path = checkpoint.with_name("a.safetensors")
    writers.write_safetensors(path, {"b": np.zeros(3, "float32")}, {})
    assert message(path, Options(), checkpoint.with_name("b.safetensors")) == (
        "DIR/a.safetensors: neither it nor the target's name shows the direction; give --to paddle or --to torch"
    )


def test_target_of_the_same_framework(checkpoint, options):
    assert message(checkpoint, options, checkpoint.with_name("b.pth")) == (
        "DIR/b.pth: DIR/a.pth is a torch checkpoint already, and .pth is torch's too; name a paddle file"
    )


@pytest.mark.parametrize("name", ["o.pdopt", "o.onnx", "o", "o.pdparams.bak"])
def test_target_of_no_format_that_is_written(checkpoint, options, name):
    assert message(checkpoint, options, checkpoint.with_name(name)) == (
        f"DIR/{name}: its suffix is not a format that can be written; use .pdparams, .npz, .pth, .pt, .pth.tar, "
        ".bin or .safetensors"
    )


@pytest.mark.parametrize("rename", [{"no.such": "x"}, {"0": "0", "no.such": "x"}, {"0": "first", "no.such": "x"}])
def test_a_rename_rule_that_fits_nothing_is_named(checkpoint, in_process, rename):
    for models in ({}, {"factories": in_process("torch_mlp", "paddle_mlp")}):
        options = Options(rename=rename, layers={} if models else {"*": "Linear"}, **models)
        assert message(checkpoint, options) == "rename rules that match no name of the reference: 'no.such'"


@pytest.mark.parametrize("option", ["keep", "transpose"])
@pytest.mark.parametrize("pattern", ["no.such", "0.weight"])  # a mistyped name, and a layer whose layout is known
def test_answers_that_nothing_asked_for_are_named(checkpoint, in_process, option, pattern):
    options = Options(factories=in_process("torch_mlp", "paddle_mlp"), **{option: (pattern,)})
    assert message(checkpoint, options).startswith(f"--{option} {pattern}: this matches no matrix of the target")


def test_an_answer_and_its_contrary(tmp_path):
    writers.write_torch(tmp_path / "a.pth", {"w": np.zeros((3, 3), "float32")})
    options = Options(layers={"w": "Parameter"}, keep=("w",), transpose=("*",))
    assert message(tmp_path / "a.pth", options) == (
        "'w' fits --keep w and a --transpose pattern; leave one of them out"
    )


def test_options_that_would_be_ignored(checkpoint, in_process):
    factories = in_process("torch_mlp", "paddle_mlp")
    assert message(checkpoint, Options(factories=factories, prefix="module.")) == (
        "--prefix module.: it only applies to torch targets, and DIR/out.pdparams is paddle's; leave it out"
    )
    assert message(checkpoint, Options(factories=factories, inputs=("2,x",))).startswith("--input 2,x: give an .npz")


def test_the_prefix_is_put_before_every_key_of_either_torch_format(checkpoint, options, tmp_path):
    convert_checkpoint(checkpoint, tmp_path / "o.pdparams", options)
    for name, direction in (("b.pth", None), ("b.safetensors", "torch")):
        back = dataclasses.replace(options, prefix="module.", direction=direction)
        convert_checkpoint(tmp_path / "o.pdparams", tmp_path / name, back)
        assert all(key.startswith("module.") for key in read_tree(tmp_path / name))


def test_a_part_that_a_killed_process_left_is_cleared_and_no_other(checkpoint, options):
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    left, alive, others = (
        checkpoint.with_name(name)
        for name in (
            f".o.pdparams.{int(dead.stdout)}.part",
            ".o.pdparams.1.part",
            f".p.pdparams.{int(dead.stdout)}.part",
        )
    )
    locked = checkpoint.with_name(f".o.pdparams.{2**31}.part")  # of a process elsewhere that still writes it
    for path in (left, alive, others, locked):
        path.write_bytes(b"half")
    with locked.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        convert_checkpoint(checkpoint, checkpoint.with_name("o.pdparams"), options)
    assert [path.exists() for path in (left, alive, others, locked)] == [False, True, True, True]


def test_a_file_larger_than_the_system_allows(checkpoint, options, tmp_path):
    writers.write_torch(tmp_path / "big.pth", {"w": np.zeros(10**6, "float32")})
    target = tmp_path / "o.pdparams"
    target.write_bytes(b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, limits[1]))
    try:
        assert message(tmp_path / "big.pth", Options(), target) == (
            "DIR/o.pdparams: it exceeds the file size limit (ulimit -f); nothing was written; raise the limit"
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_full_disk_leaves_the_old_file(checkpoint, options, monkeypatch):
    target = checkpoint.with_name("o.pdparams")
    target.write_bytes(b"old")

    class Full:
        def __init__(self, file):
            self.file = file
            self.fileno = file.fileno

        def write(self, data):
            raise OSError(errno.ENOSPC, "No space left on device")

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()

    monkeypatch.setattr("twinalign.files.writer.open", lambda path, mode: Full(path.open(mode)), raising=False)
    assert message(checkpoint, options, target) == (
        "DIR/o.pdparams: the disk is full; nothing was written; free some space and repeat"
    )


def test_an_interrupted_conversion_leaves_the_old_file(checkpoint, options, monkeypatch):
    target = checkpoint.with_name("o.pdparams")
    target.write_bytes(b"old")

    def interrupt(array):
        raise KeyboardInterrupt

    monkeypatch.setattr("twinalign.conversion.pickles.raw_bytes", interrupt)
    with pytest.raises(KeyboardInterrupt):
        convert_checkpoint(checkpoint, target, options)
    assert target.read_bytes() == b"old"
    assert sorted(path.name for path in checkpoint.parent.glob("*.part")) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "it is not JSON"),
        ("[1]", "rename rules are one JSON object"),
        ('{"a": 1}', "rename rules are one JSON object"),
    ],
)
def test_rename_files(tmp_path, text, expected):
    (tmp_path / "rules.json").write_text(text)
    with pytest.raises(InputError, match=expected):
        read_rules(tmp_path / "rules.json")


def test_pairs_without_equals():
    with pytest.raises(InputError, match="--layer head: NAME=VALUE expected"):
        parse_pairs("--layer", ["head"])
    assert parse_pairs("--setting", ["a=0.1", "b=x"], literal=True) == {"a": 0.1, "b": "x"}


def shards(folder, table):
    writers.write_safetensors(folder / "one.safetensors", {"a": np.zeros(2, "float32")}, {})
    (folder / "m.safetensors.index.json").write_text(json.dumps(table))
    return folder / "m.safetensors.index.json"


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"weights": {}}, "it is not an index of shards: 'weight_map' is missing or malformed"),
        ({"weight_map": {"a": "../one.safetensors"}}, "is not a plain file name beside the index"),
        ({"weight_map": {"b": "one.safetensors"}}, "it lacks 'b', which m.safetensors.index.json says is in it"),
        ({"weight_map": {"a": "two.safetensors"}}, "No such file or directory"),
    ],
)
def test_shards(tmp_path, table, expected):
    with pytest.raises(InputError, match=expected):
        read_checkpoint(shards(tmp_path, table))


def test_a_header_that_claims_more_than_the_file(tmp_path):
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", 10**9) + b"{}")
    with pytest.raises(InputError, match="its content is not"):
        read_checkpoint(tmp_path / "a.safetensors")
