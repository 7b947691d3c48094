"""Rules of repair: what of torch's API is rewritten before the draft, as data; no rule knows a model."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Rule:
    """One name of torch, by its full name, and what the port has in its place."""

    pattern: str
    replacement: str
    why: str
    paddle: str = "3.3"
    """Versions of paddle in which it was seen to be needed."""


_KEYWORDS = "its keywords are torch's, in partial() and ** as well"
_INPLACE = "paddle's has no inplace"

SHIMS = tuple(
    Rule(f"torch.{name}", name.rpartition(".")[2], why)
    for why, names in {
        _KEYWORDS: "nn.BatchNorm1d nn.BatchNorm2d nn.BatchNorm3d nn.LayerNorm nn.GroupNorm nn.MaxPool2d nn.AvgPool2d "
        "nn.GELU nn.functional.gelu nn.functional.batch_norm nn.ConvTranspose2d",
        "its attributes and first weights are torch's": "nn.Linear nn.Conv1d nn.Conv2d nn.Conv3d",
        _INPLACE: "nn.ReLU nn.ReLU6 nn.SiLU nn.Mish nn.Hardswish nn.LeakyReLU nn.ELU nn.Dropout nn.Dropout2d",
        "paddle's default slope has seven digits of 1/6": "nn.Hardsigmoid nn.functional.hardsigmoid",
        "paddle's split takes the number of parts": "split chunk",
        "paddle wants a tensor where torch takes a number": "pow",
    }.items()
    for name in names.split()
)
"""Names that the port takes from its own file of shims."""

METHODS = (
    *(
        Rule(name, name.rstrip("_"), "paddle wants a tensor where torch takes a number")
        for name in ("div_", "mul_", "add_", "sub_")
    ),
    Rule("split", "split", "paddle's split takes the number of parts"),
    Rule("chunk", "chunk", "torch's last part may be smaller"),
)
"""Methods of tensors that become calls of a shim."""

VALUES = (
    Rule("torch.jit.is_scripting", "False", "paddle has no TorchScript"),
    Rule("torch.jit.is_tracing", "False", "paddle has no TorchScript"),
    Rule("torch.compiler.is_compiling", "False", "paddle has no torch.compile"),
    Rule("torch.fx.is_fx_tracing", "False", "paddle has no torch.fx"),
    Rule("torch._C._get_tracing_state", "None", "paddle has no TorchScript"),
    Rule("torch.overrides.has_torch_function", "False", "paddle has no __torch_function__"),
)
"""Calls that have one answer in paddle."""

KEYWORDS = (Rule("torch.nn.functional.", "inplace", "paddle's functions have no inplace"),)
"""Keywords that calls lose: pattern is the function (a dot at its end: all below), replacement the keyword."""

DECORATORS = (
    Rule("torch.jit.", "", "paddle has no TorchScript"),
    Rule("torch.compiler.", "", "paddle has no torch.compile"),
    Rule("torch.fx.", "", "paddle has no torch.fx"),
)
"""Decorators that are taken away; a pattern that ends in a dot stands for all below it."""

ANNOTATIONS = (Rule("torch.jit.Final", "", "paddle has no TorchScript: what is in its brackets stays"),)

STATEMENTS = (
    Rule("torch._assert", "", "paddle has none; torch's is there for tracing"),
    Rule("torch.fx.wrap", "", "paddle has no torch.fx"),
    Rule("torch._C._log_api_usage_once", "", "it counts calls for torch's makers"),
)
"""Calls that stand as a statement and are taken away."""
