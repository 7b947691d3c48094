"""A small training in both frameworks, of a network with a moving average of itself; the port's loop can go wrong."""

from __future__ import annotations

import functools
import importlib
from pathlib import Path
from typing import Any

import numpy as np

from twinalign import Case

BATCH, WIDTH = 6, 5
_STATISTICS = ("_mean", "_variance")
LEFT_OUT = {"ema_last_left": "3.", "ema_scale_left": "1.weight", "ema_mean_left": "1._mean"}
"""Fault → how the names of what the port's moving average leaves out begin."""


class Training(Case):
    """Regression by stochastic gradient descent with momentum; its rate falls."""

    name = "training"
    float64_train_steps = 5
    fault = ""
    layer_fault = False
    """In the port a batch norm has another epsilon."""
    clip_norm = 0.0
    """Largest norm of the gradient, if not 0: torch's side clips before its step, paddle's optimizer inside of it."""
    rounded = False
    """The port's batches differ by what an input pipeline in float32 may round."""
    averages_buffers = False
    """The moving average covers the running statistics as well."""
    hooked = False
    """Torch's side clips in a hook of its optimizer."""
    clips_copies = False
    """What the port's optimizer clips are copies, so that the gradients stay as they are."""
    port_clip_norm = 0.0
    """What the port clips by, if not 0, in place of `clip_norm`."""
    optimizer_fault = ""
    """In the port: `norm` and `value` clip each gradient so, `by_hand` each by its norm and 1e-6 before that, `adam`
    is no AdamW, `decay` stays as it begins."""
    stop = ""
    """Stem of files: each side raises before its fourth step where there is none of its own yet."""

    def reference(self) -> Any:
        from torch import nn

        return _student(nn, nn.Module)

    def reproduced(self) -> Any:
        from paddle import nn

        student = _student(nn, nn.Layer)
        if self.layer_fault:
            student.student[1]._epsilon = 1e-2
        return student

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((BATCH, WIDTH), dtype=np.float32)}

    def train(self, framework: str, model: Any, record: Any, steps: int | None = None) -> dict[str, Any]:
        fault = self.fault if framework == "paddle" else ""
        clip_norm = self.port_clip_norm or self.clip_norm if framework == "paddle" else self.clip_norm
        tensor, optimizer = _tools(framework, model, clip_norm, self.optimizer_fault, self.hooked)
        if framework == "paddle" and self.clips_copies:
            clip = optimizer._grad_clip
            clip._dygraph_clip = functools.partial(_clipped_copies, clip._dygraph_clip)
        if framework == "paddle":
            model.teacher.set_state_dict(model.student.state_dict())
        else:
            model.teacher.load_state_dict(model.student.state_dict())
        if fault == "initialisation":
            scale(model.student, 1.5)
        if fault == "batch_norm_momentum":
            model.student[1]._momentum = model.teacher[1]._momentum = 0.8
        rng = np.random.default_rng([3, self.seed])
        model.eval() if fault == "evaluation_mode" else model.train()
        begin = self.resumed(framework, model, optimizer, record) if self.stop else 0
        for number in range(steps or 5):
            x, y = tensor(rng.standard_normal((BATCH, WIDTH))), tensor(rng.standard_normal((BATCH, 1)))
            if number < begin:
                continue
            if number == 3 and self.stop:
                self.stopped(framework, model, optimizer, record)
            if fault == "data":
                x = 2 * x
            if self.rounded and framework == "paddle":
                x = (1 + 3e-8) * x
            rate = 0.1 / (1 + number)
            record("rate", 1.5 * rate if fault == "training_rate_shown" else rate)
            self.set_rate(optimizer, rate * {"training_rate": 1.3, "training_rate_shown": 1.5}.get(fault, 1.0))
            if self.optimizer_fault not in ("", "adam"):
                decay = 0.5 / (1 + number)
                if framework == "torch":
                    optimizer.param_groups[0]["weight_decay"] = decay
                elif self.optimizer_fault != "decay":
                    optimizer._weight_decay = decay
            loss = ((model.student(x) - y) ** 2).mean() + ((model.student(x) - model.teacher(x).detach()) ** 2).mean()
            if fault == "unknown":
                loss = loss + 0.1 * (model.student[0].weight ** 4).sum()
            if fault == "unknown":  # at two places, which no single edit mends
                loss = loss + 0.3 * (model.student[0].bias ** 4).sum()
            record("loss", (3 if fault == "curve_scaled" else 1) * loss)
            loss.backward()
            if self.clip_norm and not self.hooked and framework == "torch":
                importlib.import_module("torch").nn.utils.clip_grad_norm_(model.student.parameters(), self.clip_norm)
            if self.optimizer_fault == "by_hand" and framework == "paddle":
                for parameter in model.student.parameters():
                    if (gradient := parameter.grad) is not None:
                        gradient.set_value(gradient * (self.clip_norm / (gradient.norm() + 1e-6)).clip(max=1.0))
            for _ in range(0 if fault == "step_skipped" and number % 2 else 2 if fault == "step_twice" else 1):
                optimizer.step()
            if fault != "gradients_accumulate":
                optimizer.zero_grad() if framework == "torch" else optimizer.clear_grad()
            m = 0.9
            if fault != "ema_momentum":
                copied = fault == "ema_first_copied" and number == 0
                model.everything = fault == "ema_buffers" or self.averages_buffers
                model.left_out = LEFT_OUT.get(fault, "none")
                model.update_teacher(1 - m if fault == "ema_inverted" else 0.0 if copied else m)
        error = float(loss)
        return {"quality": (100 / (1 + error), 50)}

    def resumed(self, framework: str, model: Any, optimizer: Any, record: Any) -> int:
        """The step to go on with."""
        path = record.resume()
        if path is None:
            return 0
        if framework == "torch":
            import torch

            state = torch.load(path, weights_only=True)
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
        else:
            import paddle

            state = paddle.load(str(path))
            model.set_state_dict(state["model"])
            optimizer.set_state_dict(state["optimizer"])
        return 3

    def stopped(self, framework: str, model: Any, optimizer: Any, record: Any) -> None:
        """Keep a checkpoint, and die the first time."""
        save = importlib.import_module(framework).save
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        record.checkpoint(lambda path: save(state, str(path)))
        marker = Path(f"{self.stop}.{framework}")
        if not marker.exists():
            marker.touch()
            raise RuntimeError("stopped")

    @staticmethod
    def set_rate(optimizer: Any, rate: float) -> None:
        if hasattr(optimizer, "set_lr"):
            optimizer.set_lr(rate)
        else:
            optimizer.param_groups[0]["lr"] = rate


def _tools(framework: str, model: Any, clip_norm: float, fault: str, hooked: bool) -> tuple[Any, Any]:
    if framework == "torch":
        import torch

        def tensor(array: np.ndarray) -> Any:
            return torch.as_tensor(array, dtype=next(model.parameters()).dtype)

        if fault:
            return tensor, torch.optim.AdamW(model.student.parameters(), lr=0.1, weight_decay=0.5)
        made = torch.optim.SGD(model.student.parameters(), lr=0.1, momentum=0.9)
        if hooked:
            parameters = list(model.student.parameters())

            def clip(*_: Any) -> None:
                torch.nn.utils.clip_grad_norm_(parameters, clip_norm)

            made.register_step_pre_hook(clip)
        return tensor, made
    import paddle

    def to_paddle(array: np.ndarray) -> Any:
        return paddle.to_tensor(array, dtype=model.parameters()[0].dtype)

    kinds = {"norm": paddle.nn.ClipGradByNorm, "value": paddle.nn.ClipGradByValue}
    clip = kinds.get(fault, paddle.nn.ClipGradByGlobalNorm)(clip_norm) if clip_norm and fault != "by_hand" else None
    if fault:
        kind = paddle.optimizer.Adam if fault == "adam" else paddle.optimizer.AdamW
        parameters = model.student.parameters()
        return to_paddle, kind(0.1, parameters=parameters, weight_decay=0.5, grad_clip=clip)
    return to_paddle, paddle.optimizer.Momentum(0.1, 0.9, parameters=model.student.parameters(), grad_clip=clip)


def _clipped_copies(clip: Any, pairs: Any) -> Any:
    return clip([(parameter, gradient.clone()) for parameter, gradient in pairs])


def scale(network: Any, factor: float) -> None:
    """A loop that initialises for itself."""
    for parameter in network.parameters():
        value = parameter.detach() * factor
        parameter.set_value(value) if hasattr(parameter, "set_value") else parameter.data.copy_(value)


def _student(nn: Any, base: type) -> Any:
    def network() -> Any:
        norm = nn.BatchNorm1d if hasattr(nn, "BatchNorm1d") else nn.BatchNorm1D
        return nn.Sequential(nn.Linear(WIDTH, 7), norm(7), nn.Tanh(), nn.Linear(7, 1))

    class Student(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.student, self.teacher = network(), network()
            self.everything, self.left_out = False, "none"

        def forward(self, x: Any) -> Any:
            return self.student(x)

        def update_teacher(self, m: float) -> None:
            # Paddle's running statistics are among the parameters.
            pairs = zip(self.student.named_parameters(), self.teacher.parameters(), strict=True)
            kept = [(n, q, k) for (n, q), k in pairs if self.everything or not n.endswith(_STATISTICS)]
            taken = [(q, k) for n, q, k in kept if not n.startswith(self.left_out)]
            if self.everything and hasattr(nn, "Module"):  # torch's
                both = zip(self.student.buffers(), self.teacher.buffers(), strict=True)
                taken += [(q, k) for q, k in both if q.is_floating_point()]
            for q, k in taken:
                moved = k.detach() * m + q.detach() * (1 - m)
                k.set_value(moved) if hasattr(k, "set_value") else k.data.copy_(moved)

    return Student()
