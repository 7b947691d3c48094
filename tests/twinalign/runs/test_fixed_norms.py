"""A batch norm with fixed statistics: buffers on one side, frozen parameters on the other, and no fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinalign.recorder.recorder import RunSettings
from twinalign.runs.run_stages import run

pytestmark = pytest.mark.usefixtures("kept_processes")

CASE = '''
from twinalign import Case


class Fixed(Case):
    """The reference keeps all of its norm in buffers, and the port uses paddle's, frozen."""

    steps, float64_train_steps, train_mode, frozen = 2, 3, True, True

    def reference(self):
        import torch

        class FixedNorm(torch.nn.Module):
            def __init__(self, width):
                super().__init__()
                for name in ("weight", "bias", "running_mean", "running_var"):
                    self.register_buffer(name, 0.5 + torch.rand(width))

            def forward(self, x):
                scale = self.weight * (self.running_var + 1e-5).rsqrt()
                return x * scale + self.bias - self.running_mean * scale

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.norm, self.last = torch.nn.Linear(6, 8), FixedNorm(8), torch.nn.Linear(8, 3)

            def forward(self, x):
                return self.last(torch.relu(self.norm(self.first(x))))

        return Net()

    def reproduced(self):
        import paddle

        class Net(paddle.nn.Layer):
            def __init__(own):
                super().__init__()
                own.embed, own.head = paddle.nn.Linear(6, 8), paddle.nn.Linear(8, 3)
                own.fixed = paddle.nn.BatchNorm1D(8, use_global_stats=True)
                for parameter in own.fixed.parameters():
                    parameter.stop_gradient = self.frozen

            def forward(own, x):
                return own.head(paddle.nn.functional.relu(own.fixed(own.embed(x))))

        return Net()

    def inputs(self, rng):
        return {"x": rng.standard_normal((16, 6), dtype="float32"), "labels": rng.integers(0, 3, 16)}

    def loss(self, outputs, inputs, framework):
        from importlib import import_module

        return import_module(framework).nn.functional.cross_entropy(outputs, inputs["labels"])

    def optimizer(self, parameters, framework):
        if framework == "torch":
            import torch

            return torch.optim.SGD([one for one in parameters if one.requires_grad], 0.1)
        import paddle

        return paddle.optimizer.SGD(0.1, parameters=[one for one in parameters if not one.stop_gradient])

    def evaluate(self, model, framework, dtype):
        import numpy as np
        from importlib import import_module

        library = import_module(framework)
        x = np.random.default_rng(1).standard_normal((9, 6)).astype(dtype)
        return {"spread": float(model(library.to_tensor(x) if framework == "paddle" else library.tensor(x)).std())}

    def train(self, framework, model, record, steps=None):
        from importlib import import_module

        import numpy as np

        library = import_module(framework)
        optimizer = self.optimizer([*model.parameters()], framework)
        rng = np.random.default_rng(2)
        dtype = str(next(iter(model.parameters())).dtype).split(".")[-1]
        for _ in range(steps or 4):
            x, labels = rng.standard_normal((8, 6)).astype(dtype), rng.integers(0, 3, 8)
            x, labels = (getattr(library, "to_tensor", getattr(library, "tensor", None))(one) for one in (x, labels))
            loss = library.nn.functional.cross_entropy(model(x), labels)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad() if framework == "paddle" else optimizer.zero_grad()
            record("loss", float(loss))
        return {}


class Trained(Fixed):
    """The port forgot to freeze it."""

    frozen = False
'''


@pytest.mark.parametrize(("name", "verdict"), [("Fixed", "aligned"), ("Trained", "diverged")])
def test_frozen_parameters_of_the_port_may_be_the_references_buffers(tmp_path: Path, name: str, verdict: str) -> None:
    (tmp_path / "case.py").write_text(CASE)
    found = run(RunSettings(f"{tmp_path}/case.py:{name}", tmp_path / "out"))
    stages = {stage: judged.verdict for stage, judged in found.stages.items()}
    expected = {"forward", "metric", "loss", "backward", "train"} if verdict == "aligned" else {"backward", "train"}
    assert {stage for stage, of_stage in stages.items() if of_stage == verdict} == expected
