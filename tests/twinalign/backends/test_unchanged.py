"""A module is as it was after a run that was only tried."""

from __future__ import annotations

import torch
from torch import nn

from twinalign.backends.torch.reference_only.rewriting import unchanged


def test_a_tensor_that_a_pass_binds_anew_is_the_one_it_was() -> None:
    module = nn.Module()
    module.register_buffer("table", torch.arange(3.0))
    module.plain = torch.ones(2)  # type: ignore[assignment]
    table, plain = module.table, module.plain
    with unchanged(module):
        module.table = table.flip(0)
        module.plain = plain + 1  # type: ignore[assignment,operator]
    assert module.table is table
    assert module.plain is plain
    assert table.tolist() == [0.0, 1.0, 2.0]
