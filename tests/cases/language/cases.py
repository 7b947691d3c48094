"""The language models as cases, and the faults that ports of such models have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from twinalign import Case

WORDS = 50


class Qwen2(Case):
    """A decoder with rotary embeddings, grouped-query attention, RMSNorm and tied embeddings; its next-token loss."""

    name = "qwen2"
    bias = True
    steps = 2

    def reference(self) -> Any:
        import torch

        from tests.cases.language import ref

        model = ref.Decoder(bias=self.bias)
        with torch.no_grad():
            for parameter in model.parameters():  # norms of exactly one would hide what is done with them
                parameter += 0.1 * torch.randn_like(parameter)
        return model

    def reproduced(self) -> Any:
        from tests.cases.language import port

        return port.Decoder(bias=self.bias)

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Token ids `[3, 9]`, int64."""
        return {"input_ids": rng.integers(0, WORDS, (3, 9))}

    def loss(self, outputs: Any, inputs: Mapping[str, Any], framework: str) -> Any:
        """Cross entropy of the next token."""
        logits, labels = outputs[:, :-1].reshape([-1, WORDS]), inputs["input_ids"][:, 1:].reshape([-1])
        if framework == "torch":
            from torch.nn import functional
        else:
            from paddle.nn import functional
        return functional.cross_entropy(logits, labels)

    def optimizer(self, parameters: list[Any], framework: str) -> Any:
        """AdamW."""
        if framework == "torch":
            import torch

            return torch.optim.AdamW(parameters, 1e-3, weight_decay=0.1)
        import paddle

        return paddle.optimizer.AdamW(1e-3, parameters=parameters, weight_decay=0.1)


class Llama(Qwen2):
    """The same without biases."""

    name = "llama"
    bias = False


class Bert(Case):
    """An encoder with padding, token types and a pooler."""

    name = "bert"

    def reference(self) -> Any:
        from tests.cases.language import ref

        return ref.Encoder()

    def reproduced(self) -> Any:
        from tests.cases.language import port

        return port.Encoder()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Token ids, token types and a mask, each `[3, 9]`, int64; the second text is shorter."""
        mask = np.ones((3, 9), "int64")
        mask[1, 6:] = 0
        return {
            "input_ids": rng.integers(1, WORDS, (3, 9)) * mask,
            "token_type_ids": rng.integers(0, 2, (3, 9)),
            "attention_mask": mask,
        }


class FourFaults(Qwen2):
    """What ports of such models get wrong, each in a layer of its own."""

    def reproduced(self) -> Any:
        model = super().reproduced()
        first, second = model.layers
        first.attention.scale = 1.0  # the scores are not divided by the root of the head's width
        first.post_norm.eps = 1e-5  # where the reference has 1e-6
        second.attention.rotary.interleaved = True  # neighbours are paired, not halves
        second.attention.share = lambda x: x.tile([1, 2, 1, 1])  # query heads get another group's keys and values
        return model
