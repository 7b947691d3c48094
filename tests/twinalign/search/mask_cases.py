"""A model that makes a mask of its own and hands it to a layer, which adds it under a softmax."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cases.one_net import OneNet


class HiddenAlike(OneNet):
    """The port hides with -10000, the reference with the least number: a softmax gives the same."""

    hidden = -1e4

    def net(self, root: Any, framework: str) -> Any:
        kind, port, hidden = root.nn, framework == "paddle", self.hidden

        class Attention(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.value = kind.Linear(4, 4)

            def forward(self, x: Any, mask: Any) -> Any:
                scores = root.matmul(x, x.transpose([0, 2, 1]) if port else x.transpose(1, 2)) + mask
                return root.matmul(root.nn.functional.softmax(scores, -1), self.value(x))

        class Net(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.enter, self.attention = kind.Linear(4, 4), Attention()

            def forward(self, x: Any, seen: Any) -> Any:
                x = self.enter(x)
                least = hidden if port else root.finfo(x.dtype).min
                return self.attention(x, (1 - seen[:, None]) * least)

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        seen = np.ones((3, 5), "float32")
        seen[:, 3:] = rng.permutation(3)[:, None] > 0
        return {"x": rng.standard_normal((3, 5, 4), dtype="float32"), "seen": seen}


class HiddenInPart(HiddenAlike):
    """The port takes 1 off what is to be hidden."""

    hidden = -1.0


class OtherArgument(OneNet):
    """The port hands its layer a mask where the reference hands positions, and makes the mask inside."""

    scale = 1.0

    def net(self, root: Any, framework: str) -> Any:
        kind, port, scale = root.nn, framework == "paddle", self.scale

        class Attention(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.value = kind.Linear(4, 4)

            def forward(self, x: Any, other: Any) -> Any:
                scores = root.matmul(x, x.transpose([0, 2, 1]) if port else x.transpose(1, 2))
                mask = other if port else root.triu(root.full((5, 5), -1e4, dtype=x.dtype), 1)
                scores = scores * scale + mask if port else scores + mask
                return self.value(root.matmul(root.nn.functional.softmax(scores, -1), x))

        class Net(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.enter, self.attention = kind.Linear(4, 4), Attention()

            def forward(self, x: Any) -> Any:
                x = self.enter(x)
                if port:
                    return self.attention(x, root.triu(root.full([1, 5, 5], -1e4, dtype=x.dtype), 1))
                return self.attention(x, root.arange(5)[None])

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((3, 5, 4), dtype="float32")}


class OtherArgumentScaled(OtherArgument):
    """And its scores are scaled."""

    scale = 0.5


class Valid(OneNet):
    """The port's masks say what is valid, the reference's what is padding; an encoder hands them to two layers."""

    scale, model_inverts, numbers = 1.0, False, False

    def net(self, root: Any, framework: str) -> Any:
        kind, port, scale = root.nn, framework == "paddle", self.scale
        model_inverts, numbers = self.model_inverts, self.numbers
        base = kind.Layer if port else kind.Module

        class Attention(base):  # type: ignore[misc, valid-type]
            def __init__(self) -> None:
                super().__init__()
                self.value = kind.Linear(4, 4)

            def forward(self, x: Any, mask: Any) -> Any:
                if port and not model_inverts:
                    bias = (1.0 - mask.astype(x.dtype)) * -1e9
                    scores = root.matmul(x, x, transpose_y=True) * scale + bias.unsqueeze(1)
                elif port:
                    scores = root.where(mask.unsqueeze(1), -1e9, root.matmul(x, x, transpose_y=True))
                else:
                    scores = (x @ x.transpose(1, 2)).masked_fill(mask[:, None], -1e9)
                return self.value(root.matmul(root.nn.functional.softmax(scores, -1), x))

        class Encoder(base):  # type: ignore[misc, valid-type]
            def __init__(self) -> None:
                super().__init__()
                self.attention, self.leave = Attention(), kind.Linear(4, 4)

            def forward(self, x: Any, mask: Any) -> Any:
                return self.leave(self.attention(x, mask) + x)

        class Net(base):  # type: ignore[misc, valid-type]
            def __init__(self) -> None:
                super().__init__()
                self.enter, self.encoder = kind.Linear(4, 4), Encoder()

            def forward(self, x: Any, lengths: Any) -> Any:
                places = root.arange(5)[None]
                mask = places < lengths[:, None] if port else places >= lengths[:, None]
                return self.encoder(self.enter(x), mask.astype(x.dtype) if port and numbers else mask)

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((3, 5, 4), dtype="float32"), "lengths": rng.permutation([5, 3, 2])}


class ValidNumbers(Valid):
    """They are numbers in the port."""

    numbers = True


class ValidScaled(Valid):
    """The port's attention scales its scores besides."""

    scale = 0.5


class ValidInAModelOfPadding(Valid):
    """The port's layers want masks of padding too, and its model gives them those of what is valid."""

    model_inverts = True
