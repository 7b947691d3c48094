"""Whole conversions of files, the models asked in this process."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import paddle
import pytest
import torch

from tests.twinalign.conversion.ledgers import unaccounted
from twinalign.conversion.convert_file import convert_checkpoint
from twinalign.conversion.options import Options
from twinalign.errors import DivergedError, ExitCode, InputError


def load_models(in_process, reference, port):
    from twinalign.conversion.model_factory import load_factory

    return [load_factory(specification)[0]() for specification in in_process(reference, port).values()]


def randomised(model, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for name, value in model.state_dict().items():
        if value.dtype.is_floating_point:
            made = torch.randn(value.shape, generator=generator)
            value.copy_(made.abs() + 0.5 if name.endswith("running_var") else made)
    return model.eval()


def outputs(reference, port, *inputs):
    with torch.no_grad(), paddle.no_grad():
        return (
            reference.double()(*map(torch.from_numpy, inputs)).numpy(),
            port.to(dtype="float64")(*map(paddle.to_tensor, inputs)).numpy(),
        )


def test_there_and_back_is_bit_identical_and_the_frameworks_load_it(in_process, tmp_path):
    reference, port = load_models(in_process, "torch_mlp", "paddle_mlp")
    state = randomised(reference).state_dict()
    torch.save(state, tmp_path / "a.pth")
    options = Options(factories=in_process("torch_mlp", "paddle_mlp"))
    convert_checkpoint(tmp_path / "a.pth", tmp_path / "a.pdparams", options)
    assert port.set_state_dict(paddle.load(str(tmp_path / "a.pdparams"))) == ([], [])
    port.eval()
    expected, given = outputs(reference, port, np.random.default_rng(0).standard_normal((5, 3)))
    np.testing.assert_allclose(given, expected, atol=1e-10)  # paddle keeps a norm's epsilon in float32
    convert_checkpoint(tmp_path / "a.pdparams", tmp_path / "b.pth", options)
    back = torch.load(tmp_path / "b.pth", weights_only=True)
    assert list(back) == list(state)
    assert all(torch.equal(back[key], value.to(back[key].dtype)) for key, value in state.items())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_kept_bit_for_bit(in_process, tmp_path, dtype):
    reference, _ = load_models(in_process, "torch_mlp", "paddle_mlp")
    state = {k: v.to(dtype) if v.dtype.is_floating_point else v for k, v in randomised(reference).state_dict().items()}
    torch.save(state, tmp_path / "a.pth")
    options = Options(factories=in_process("torch_mlp", "paddle_mlp"))
    convert_checkpoint(tmp_path / "a.pth", tmp_path / "a.pdparams", options)
    loaded = paddle.load(str(tmp_path / "a.pdparams"))
    assert str(loaded["0.weight"].dtype).removeprefix("paddle.") == str(dtype).removeprefix("torch.")
    convert_checkpoint(tmp_path / "a.pdparams", tmp_path / "a.safetensors", options)
    convert_checkpoint(tmp_path / "a.pdparams", tmp_path / "b.pth", options)
    back = torch.load(tmp_path / "b.pth", weights_only=True)
    for key, value in state.items():
        assert back[key].dtype == value.dtype
        assert torch.equal(
            back[key].view(torch.int16) if value.ndim else back[key], value.view(torch.int16) if value.ndim else value
        )


def test_one_model_is_enough_where_both_have_the_same_names(in_process, tmp_path):
    reference, port = load_models(in_process, "torch_token", "paddle_token")
    torch.save(randomised(reference).state_dict(), tmp_path / "a.pth")
    factories = in_process("torch_token", "paddle_token")
    convert_checkpoint(tmp_path / "a.pth", tmp_path / "one.pdparams", Options(factories={"ref": factories["ref"]}))
    convert_checkpoint(tmp_path / "a.pth", tmp_path / "both.pdparams", Options(factories=factories))
    one, both = (paddle.load(str(tmp_path / f"{name}.pdparams")) for name in ("one", "both"))
    assert set(one) == set(both) == set(port.state_dict())
    assert all(np.array_equal(one[key].numpy(), both[key].numpy()) for key in both)


def test_branches_of_equal_shape_registered_in_another_order_are_found_by_running(in_process, tmp_path):
    reference, port = load_models(in_process, "TorchBranches", "PaddleBranches")
    torch.save(randomised(reference).state_dict(), tmp_path / "a.pth")
    options = Options(factories=in_process("TorchBranches", "PaddleBranches"), inputs=("2,3,8,8",), verify=True)
    report = convert_checkpoint(tmp_path / "a.pth", tmp_path / "a.pdparams", options)
    assert {e.target: e.source for e in report.ledger.entries if e.target}["first.weight"] == ("left.weight",)
    assert {e.matched_by for e in report.ledger.entries if e.target} == {"trial"}
    assert report.ledger.facts["verified"]["relative_difference"] < 1e-10
    port.set_state_dict(paddle.load(str(tmp_path / "a.pdparams")))
    port.eval()
    expected, given = outputs(reference, port, np.random.default_rng(0).standard_normal((2, 3, 8, 8)))
    np.testing.assert_allclose(given, expected, atol=1e-10)


def test_networks_that_differ_are_refused_with_the_place_named_and_nothing_is_written(in_process, tmp_path):
    reference, _ = load_models(in_process, "TorchBranches", "PaddleBranchesDifferent")
    torch.save(randomised(reference).state_dict(), tmp_path / "a.pth")
    options = Options(factories=in_process("TorchBranches", "PaddleBranchesDifferent"), inputs=("2,3,8,8",))
    with pytest.raises(DivergedError, match=r"from 'norm' \(paddle: 'bn'\) on the reference runs norm BatchNorm2d"):
        convert_checkpoint(tmp_path / "a.pth", tmp_path / "a.pdparams", options)
    assert DivergedError.exit_code == ExitCode.DIVERGED
    assert [path.name for path in tmp_path.glob("*.pdparams*")] == []


def test_without_an_input_to_run_on_the_candidates_are_listed(in_process, tmp_path):
    reference, _ = load_models(in_process, "TorchBranches", "PaddleBranches")
    torch.save(randomised(reference).state_dict(), tmp_path / "a.pth")
    options = Options(factories=in_process("TorchBranches", "PaddleBranches"), inputs=("2,3",))
    with pytest.raises(InputError) as error:
        convert_checkpoint(tmp_path / "a.pth", tmp_path / "a.pdparams", options)
    assert str(error.value).startswith(
        "the names differ and shapes alone do not show which layer is which; give rename rules, or an input to run "
        "both models on (--input): left, right ↔ second, first. Running them was tried: the ref model failed"
    )


def test_a_square_matrix_of_the_models_own_is_settled_by_running_it(in_process, tmp_path):
    reference, _ = load_models(in_process, "TorchRaw", "PaddleRaw")
    torch.save(randomised(reference).state_dict(), tmp_path / "a.pth")
    options = Options(factories=in_process("TorchRaw", "PaddleRaw"), inputs=("3,4",))
    report = convert_checkpoint(tmp_path / "a.pth", tmp_path / "a.pdparams", options)
    assert report.ledger.facts["verified"]["settled_matrices"] == {"matrix": True}
    matrix = paddle.load(str(tmp_path / "a.pdparams"))["matrix"].numpy()
    np.testing.assert_array_equal(matrix, reference.matrix.detach().numpy().T)


def test_nested_checkpoint_of_a_wrapped_model(in_process, tmp_path):
    reference, _ = load_models(in_process, "torch_mlp", "paddle_mlp")
    state = {f"module.{key}": value for key, value in randomised(reference).state_dict().items()}
    torch.save({"epoch": 7, "arch": "mlp", "state_dict": state}, tmp_path / "a.pth.tar")
    options = Options(factories=in_process("torch_mlp", "paddle_mlp"))
    report = convert_checkpoint(tmp_path / "a.pth.tar", tmp_path / "a.pdparams", options)
    assert report.ledger.facts["source"]["prefix"] == "module."
    assert json.loads((tmp_path / "a.run.json").read_text()) == {"epoch": 7, "arch": "mlp"}
    convert_checkpoint(tmp_path / "a.pdparams", tmp_path / "b.pth", options)
    back = torch.load(tmp_path / "b.pth", weights_only=True)
    assert (back["epoch"], back["arch"], list(back["state_dict"])) == (7, "mlp", list(reference.state_dict()))


def test_what_a_file_of_arrays_cannot_hold_has_one_row_in_the_ledger(in_process, tmp_path):
    reference, _ = load_models(in_process, "torch_mlp", "paddle_mlp")
    torch.save({"state_dict": reference.state_dict(), "epoch": 3, "arch": "mlp"}, tmp_path / "a.pth.tar")
    options = Options(factories=in_process("torch_mlp", "paddle_mlp"))
    report = convert_checkpoint(tmp_path / "a.pth.tar", tmp_path / "b.safetensors", options)
    rows = [(entry.source, entry.target, entry.actions) for entry in report.ledger.entries]
    assert [row for row in rows if row[0][0] in ("epoch", "arch")] == [
        (("epoch",), None, ("dropped",)),
        (("arch",), None, ("dropped",)),
    ]


def test_sharded_safetensors(in_process, tmp_path):
    from safetensors.torch import save_file

    reference, _ = load_models(in_process, "torch_mlp", "paddle_mlp")
    state = {key: value.contiguous() for key, value in randomised(reference).state_dict().items()}
    names = {key: f"model-{i % 2 + 1}.safetensors" for i, key in enumerate(state)}
    for name in set(names.values()):
        save_file({key: value for key, value in state.items() if names[key] == name}, tmp_path / name)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    torch.save(reference.state_dict(), tmp_path / "a.pth")
    options = Options(factories=in_process("torch_mlp", "paddle_mlp"))
    convert_checkpoint(tmp_path / "model.safetensors.index.json", tmp_path / "a.pdparams", options)
    convert_checkpoint(tmp_path / "a.pth", tmp_path / "b.pdparams", options)
    one, two = (paddle.load(str(tmp_path / name)) for name in ("a.pdparams", "b.pdparams"))
    assert list(one) == list(two)
    assert all(np.array_equal(one[key].numpy(), two[key].numpy()) for key in one)


def test_the_ledger_accounts_for_every_key_of_either_side(in_process, tmp_path):
    reference, port = load_models(in_process, "torch_mlp", "paddle_mlp")
    torch.save(randomised(reference).state_dict(), tmp_path / "a.pth")
    options = Options(factories=in_process("torch_mlp", "paddle_mlp"))
    report = convert_checkpoint(tmp_path / "a.pth", tmp_path / "a.pdparams", options)
    assert unaccounted(report.ledger, list(reference.state_dict()), list(port.state_dict())) == []
    written = json.loads(report.ledger.dumps())
    assert written["totals"] == {"copied": 4, "transposed": 2, "renamed": 2, "dropped": 1}
    assert written["entries"][0] == {
        "source": ["0.weight"],
        "target": "0.weight",
        "actions": ["transposed"],
        "reason": "Linear to Linear: one stores the matrix as (out, in), the other as (in, out)",
        "source_shapes": [[4, 3]],
        "target_shape": [3, 4],
        "dtype": "float32",
        "matched_by": "name",
    }


def test_values_that_the_source_cannot_know_come_from_a_given_checkpoint(in_process, tmp_path):
    reference, _ = load_models(in_process, "torch_mlp", "paddle_mlp")
    reference.state_dict()["1.num_batches_tracked"].fill_(41)
    torch.save(randomised(reference).state_dict(), tmp_path / "a.pth")
    factories = in_process("torch_mlp", "paddle_mlp")
    convert_checkpoint(tmp_path / "a.pth", tmp_path / "a.pdparams", Options(factories=factories))
    convert_checkpoint(tmp_path / "a.pdparams", tmp_path / "zero.pth", Options(factories=factories))
    options = Options(factories=factories, defaults=tmp_path / "a.pth")
    convert_checkpoint(tmp_path / "a.pdparams", tmp_path / "kept.pth", options)
    counters = [torch.load(tmp_path / f"{n}.pth", weights_only=True)["1.num_batches_tracked"] for n in ("zero", "kept")]
    assert [int(counter) for counter in counters] == [0, 41]


def test_many_square_matrices_are_each_settled_by_running_the_models(in_process, tmp_path):
    reference, port = load_models(in_process, "TorchMatrices", "PaddleMatrices")
    torch.save(randomised(reference).state_dict(), tmp_path / "a.pth")
    options = Options(factories=in_process("TorchMatrices", "PaddleMatrices"), inputs=("3,4",))
    report = convert_checkpoint(tmp_path / "a.pth", tmp_path / "a.pdparams", options)
    turned = {f"matrix{number}": number in (0, 2, 5, 6) for number in range(8)}
    assert report.ledger.facts["verified"]["settled_matrices"] == turned
    port.set_state_dict(paddle.load(str(tmp_path / "a.pdparams")))
    expected, given = outputs(reference, port, np.random.default_rng(0).standard_normal((2, 4)))
    np.testing.assert_allclose(given, expected, atol=1e-12)
    report = convert_checkpoint(tmp_path / "a.pdparams", tmp_path / "b.pth", options)
    assert report.ledger.facts["verified"]["settled_matrices"] == turned


def test_no_layout_of_the_matrices_hides_another_difference(in_process, tmp_path):
    reference, _ = load_models(in_process, "TorchMatrices", "PaddleMatricesOther")
    torch.save(randomised(reference).state_dict(), tmp_path / "a.pth")
    options = Options(factories=in_process("TorchMatrices", "PaddleMatricesOther"), inputs=("3,4",))
    with pytest.raises(DivergedError, match="in float64 the outputs differ by"):
        convert_checkpoint(tmp_path / "a.pth", tmp_path / "a.pdparams", options)


def test_a_matrix_that_no_output_depends_on_wants_an_answer(in_process, tmp_path):
    reference, _ = load_models(in_process, "TorchIdle", "PaddleIdle")
    torch.save(randomised(reference).state_dict(), tmp_path / "a.pth")
    options = Options(factories=in_process("TorchIdle", "PaddleIdle"), inputs=("3,4",))
    with pytest.raises(InputError) as error:
        convert_checkpoint(tmp_path / "a.pth", tmp_path / "a.pdparams", options)
    assert str(error.value) == (
        "the models' outputs do not depend on these matrices of the model's own, so running the models does not show "
        "whether they are transposed: idle. Answer with --keep PATTERN or --transpose PATTERN, or give an input "
        "that uses them (--input)"
    )
    answered = dataclasses.replace(options, transpose=("idle",))
    report = convert_checkpoint(tmp_path / "a.pth", tmp_path / "a.pdparams", answered)
    assert report.ledger.facts["verified"]["settled_matrices"] == {"matrix": True}
    written = paddle.load(str(tmp_path / "a.pdparams"))
    np.testing.assert_array_equal(written["idle"].numpy(), reference.idle.detach().numpy().T)


def test_attention_packed_in_one_linear_and_apart_in_three(in_process, tmp_path):
    reference, port = load_models(in_process, "TorchPacked", "PaddleApart")
    torch.save(randomised(reference).state_dict(), tmp_path / "a.pth")
    options = Options(factories=in_process("TorchPacked", "PaddleApart"), inputs=("2,5,4",))
    report = convert_checkpoint(tmp_path / "a.pth", tmp_path / "a.pdparams", options)
    assert report.ledger.totals() == {"transposed": 4, "renamed": 8, "split": 6}
    assert report.ledger.facts["verified"]["relative_difference"] < 1e-12
    port.set_state_dict(paddle.load(str(tmp_path / "a.pdparams")))
    expected, given = outputs(reference, port, np.random.default_rng(0).standard_normal((2, 5, 4)))
    np.testing.assert_allclose(given, expected, atol=1e-12)
    report = convert_checkpoint(tmp_path / "a.pdparams", tmp_path / "b.pth", options)
    assert report.ledger.totals()["merged"] == 2
    back = torch.load(tmp_path / "b.pth", weights_only=True)
    assert all(torch.equal(back[key], value.float()) for key, value in reference.state_dict().items())


def test_a_wrong_assumption_about_the_packing_does_not_pass(in_process, tmp_path):
    reference, _ = load_models(in_process, "TorchPacked", "PaddleApartSwapped")
    torch.save(randomised(reference).state_dict(), tmp_path / "a.pth")
    options = Options(factories=in_process("TorchPacked", "PaddleApartSwapped"), inputs=("2,5,4",))
    with pytest.raises(DivergedError, match="in float64 the outputs differ by"):
        convert_checkpoint(tmp_path / "a.pth", tmp_path / "a.pdparams", options)


def test_layers_registered_in_another_order_find_their_partners(in_process, tmp_path):
    reference, port = load_models(in_process, "torch_in_order", "PaddleBackwards")
    torch.save(randomised(reference).state_dict(), tmp_path / "a.pth")
    options = Options(factories=in_process("torch_in_order", "PaddleBackwards"))
    convert_checkpoint(tmp_path / "a.pth", tmp_path / "a.pdparams", options)
    port.set_state_dict(paddle.load(str(tmp_path / "a.pdparams")))
    expected, given = outputs(reference, port, np.random.default_rng(0).standard_normal((2, 4)))
    np.testing.assert_allclose(given, expected, atol=1e-10)


def test_a_rule_of_ones_own_from_a_file(in_process, tmp_path):
    reference, _ = load_models(in_process, "torch_linear", "PaddleFused")
    torch.save(randomised(reference).state_dict(), tmp_path / "a.pth")
    (tmp_path / "my_rules.py").write_text(
        "from twinalign.conversion import Stored, storage_rule\n"
        "@storage_rule('paddle', 'models.PaddleFused', kind='linear')\n"
        "def fused(layer):\n"
        "    return [Stored.packed(layer, 'both', ['weight', 'bias'], [4, 1])]\n"
    )
    factories = in_process("torch_linear", "PaddleFused")
    with pytest.raises(InputError, match="the two models are different networks"):
        convert_checkpoint(tmp_path / "a.pth", tmp_path / "a.pdparams", Options(factories=factories))
    options = Options(factories=factories, rules=(str(tmp_path / "my_rules.py"),), verify=True)
    report = convert_checkpoint(tmp_path / "a.pth", tmp_path / "a.pdparams", options)
    assert report.ledger.totals() == {"renamed": 1, "merged": 1}
    assert report.ledger.facts["verified"]["relative_difference"] < 1e-12
    back = Options(factories=factories, rules=options.rules, prefix="module.")
    convert_checkpoint(tmp_path / "a.pdparams", tmp_path / "b.pth", back)
    state = torch.load(tmp_path / "b.pth", weights_only=True)
    assert torch.equal(state["module.weight"], reference.weight.detach())


def test_recurrent_layers_and_embeddings_are_verified_on_guessed_tokens(in_process, tmp_path):
    reference, _ = load_models(in_process, "torch_token", "paddle_token")
    torch.save(randomised(reference).state_dict(), tmp_path / "a.pth")
    options = Options(factories=in_process("torch_token", "paddle_token"), verify=True)
    report = convert_checkpoint(tmp_path / "a.pth", tmp_path / "a.pdparams", options)
    verified = report.ledger.facts["verified"]
    assert verified["inputs"] == [[2, 16]]
    assert verified["relative_difference"] < 1e-12


def test_a_linear_that_computes_something_else_is_settled_by_running_the_models(in_process, tmp_path):
    reference, _ = load_models(in_process, "torch_cosine", "paddle_cosine")
    torch.save(randomised(reference).state_dict(), tmp_path / "a.pth")
    options = Options(factories=in_process("torch_cosine", "paddle_cosine"))
    report = convert_checkpoint(tmp_path / "a.pth", tmp_path / "a.pdparams", options)
    assert report.ledger.facts["verified"]["settled_matrices"] == {"weight": False}
    weight = paddle.load(str(tmp_path / "a.pdparams"))["weight"].numpy()
    np.testing.assert_array_equal(weight, reference.weight.detach().numpy())


def test_with_one_model_a_matrix_of_its_own_wants_an_answer(in_process, tmp_path):
    reference, _ = load_models(in_process, "TorchRaw", "PaddleRaw")
    torch.save(randomised(reference).state_dict(), tmp_path / "a.pth")
    factories = {"ref": in_process("TorchRaw", "PaddleRaw")["ref"]}
    with pytest.raises(InputError) as error:
        convert_checkpoint(tmp_path / "a.pth", tmp_path / "a.pdparams", Options(factories=factories))
    assert str(error.value) == (
        "these matrices of the model's own may be stored transposed in either framework: matrix [4, 4]. Answer with "
        "--keep PATTERN or --transpose PATTERN, or give both models, so that running them decides"
    )
    expected = reference.matrix.detach().numpy()
    for answer, wanted in (("keep", expected), ("transpose", expected.T)):
        options = Options(factories=factories, **{answer: ("matrix",)})
        convert_checkpoint(tmp_path / "a.pth", tmp_path / "a.pdparams", options)
        np.testing.assert_array_equal(paddle.load(str(tmp_path / "a.pdparams"))["matrix"].numpy(), wanted)


@pytest.mark.parametrize("prefix", ["", "module."])
def test_versions_of_layers_go_into_the_file_for_those_that_refuse_to_load_without(in_process, tmp_path, prefix):
    factories = in_process("torch_versioned", "paddle_versioned")
    reference, port = load_models(in_process, "torch_versioned", "paddle_versioned")
    paddle.save(port.state_dict(), str(tmp_path / "a.pdparams"))
    convert_checkpoint(tmp_path / "a.pdparams", tmp_path / "a.pth", Options(factories=factories, prefix=prefix))
    state = torch.load(tmp_path / "a.pth", weights_only=True)
    wrapped = torch.nn.ModuleDict({"module": reference}) if prefix else reference
    assert dict(state._metadata)[prefix.removesuffix(".")] == {"version": 2}
    wrapped.load_state_dict(state)
    np.testing.assert_array_equal(reference.fc.weight.detach(), port.fc.weight.numpy().T)
    with pytest.raises(ValueError, match="of version None"):
        wrapped.load_state_dict(dict(state))
    convert_checkpoint(tmp_path / "a.pth", tmp_path / "b.pdparams", Options(factories=factories))
    np.testing.assert_array_equal(paddle.load(str(tmp_path / "b.pdparams"))["fc.weight"], port.fc.weight)
