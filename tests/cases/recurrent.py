"""A port with paddle's recurrent layers, right and wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinalign import Case


class Recurrent(Case):
    """LSTM of two layers and directions, GRU and simple RNN; judged in evaluation mode, with dropout between layers."""

    steps = 2

    def reference(self) -> Any:
        import torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.lstm = nn.LSTM(6, 5, num_layers=2, bidirectional=True, batch_first=True, dropout=0.5)
                self.gru = nn.GRU(10, 7, batch_first=True)
                self.rnn = nn.RNN(7, 4, batch_first=True)
                self.head = nn.Linear(4, 3)

            def forward(self, x: torch.Tensor) -> Any:
                x, states = self.lstm(x)
                x, _ = self.gru(x)
                x, _ = self.rnn(x)
                return self.head(x), states

        return Net()

    def reproduced(self) -> Any:
        import paddle
        from paddle import nn

        class Net(nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.lstm = nn.LSTM(6, 5, num_layers=2, direction="bidirect", dropout=0.5)
                self.gru = nn.GRU(10, 7)
                self.rnn = nn.SimpleRNN(7, 4)
                self.head = nn.Linear(4, 3)

            def forward(self, x: paddle.Tensor) -> Any:
                x, states = self.lstm(x)
                x, _ = self.gru(x)
                x, _ = self.rnn(x)
                return self.head(x), states

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((2, 5, 6), dtype="float32")}

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        logits, (hidden, cell) = outputs
        return (logits * logits).mean() + (hidden * cell).mean()

    def optimizer(self, parameters: list[Any], framework: str) -> Any:
        if framework == "torch":
            import torch

            return torch.optim.AdamW(parameters, lr=1e-2, weight_decay=0.01)
        import paddle

        return paddle.optimizer.AdamW(1e-2, parameters=parameters, weight_decay=0.01)


class RecurrentTraining(Recurrent):
    """Without dropout, in training mode, and trained."""

    train_mode = True
    float64_train_steps = 3

    def reference(self) -> Any:
        model = super().reference()
        model.lstm.dropout = 0.0
        return model

    def reproduced(self) -> Any:
        model = super().reproduced()
        model.lstm.dropout = 0.0
        return model

    def train(self, framework: str, model: Any, record: Any, steps: int | None = None) -> Any:
        if framework == "torch":
            from torch import tensor
        else:
            from paddle import to_tensor as tensor
        parameters = list(model.parameters())
        optimizer = self.optimizer(parameters, framework)
        model.train()
        for step in range(steps or 5):
            inputs = self.inputs(np.random.default_rng(step))["x"]
            loss = self.loss(model(tensor(inputs, dtype=parameters[0].dtype)), {}, framework)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad() if framework == "torch" else optimizer.clear_grad()
            record("loss", float(loss))
        return {}


class SwappedGates(Recurrent):
    """A port whose LSTM takes the first two of its gates for one another."""

    def reproduced(self) -> Any:
        import paddle
        from paddle import nn

        class Swapped(nn.LSTM):
            def forward(self, x: paddle.Tensor) -> Any:
                kept = [weight.clone() for weight in self._all_weights]
                with paddle.no_grad():
                    for weight in self._all_weights:
                        first, second, *rest = paddle.chunk(weight, 4)
                        weight.set_value(paddle.concat([second, first, *rest]))
                try:
                    return super().forward(x)
                finally:
                    with paddle.no_grad():
                        for weight, before in zip(self._all_weights, kept, strict=True):
                            weight.set_value(before)

        model = super().reproduced()
        model.lstm = Swapped(6, 5, num_layers=2, direction="bidirect")
        return model
