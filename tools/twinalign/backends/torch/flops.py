"""Floating-point operations of each layer, as torch's own counter counts them."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

__all__ = ["counting_flops"]


@contextlib.contextmanager
def counting_flops(model: torch.nn.Module) -> Iterator[dict[str, int]]:
    """See `protocol.Backend.counting_flops`."""
    from torch.utils import flop_counter  # here: it imports triton, a tenth of what torch itself takes

    def attention(query: Any, key: Any, value: Any, *others: Any, **more: Any) -> int:
        return int(flop_counter.sdpa_flop_count(query, key, value))

    # Attention on a CPU has a kernel of its own, which the counter does not know.
    further = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: attention}
    counts: dict[str, int] = {}
    entered: list[int] = []
    counter = flop_counter.FlopCounterMode(display=False, custom_mapping=further)

    def leave(path: str) -> None:
        counts[path] = counts.get(path, 0) + counter.get_total_flops() - entered.pop()

    with contextlib.ExitStack() as stack, counter:
        for path, layer in model.named_modules():
            if path:
                before = layer.register_forward_pre_hook(lambda *_: entered.append(counter.get_total_flops()))
                after = layer.register_forward_hook(lambda *_, path=path: leave(path))
                stack.callback(before.remove)
                stack.callback(after.remove)
        yield counts
        counts[""] = counter.get_total_flops()
