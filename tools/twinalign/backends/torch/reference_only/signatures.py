"""How torch functions are spelled and what their parameters are called: what causes speak of, without torch."""

_POOL = ("input", "kernel_size", "stride", "padding")
_CONVOLUTION = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_TRANSPOSED = ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")
_LOSS = ("input", "target", "size_average", "reduce", "reduction")
_MAXIMUM_POOL = (*_POOL, "dilation", "ceil_mode", "return_indices")
_AVERAGE_POOL = (*_POOL, "ceil_mode", "count_include_pad", "divisor_override")
_RECURRENT = ("input", "hx", "weights", "has_biases", "num_layers", "dropout", "train", "bidirectional", "batch_first")
_REDUCTION = ("input", "dim", "keepdim")

ARGUMENTS: dict[str, tuple[str, ...]] = {
    **{f"conv{n}d": _CONVOLUTION for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _TRANSPOSED for n in (1, 2, 3)},
    **{f"max_pool{n}d": _MAXIMUM_POOL for n in (1, 2, 3)},
    **{f"avg_pool{n}d": _AVERAGE_POOL for n in (1, 2, 3)},
    **{f"adaptive_{kind}_pool{n}d": ("input", "output_size") for kind in ("avg", "max") for n in (1, 2, 3)},
    **dict.fromkeys(("mean", "sum", "amax", "amin", "prod", "any", "all", "max", "min", "argmax"), _REDUCTION),
    **dict.fromkeys(("std", "var"), ("input", "dim", "unbiased", "keepdim")),
    **dict.fromkeys(("softmax", "log_softmax"), ("input", "dim", "dtype")),
    **dict.fromkeys(("view", "reshape", "expand", "repeat"), ("input", "sizes")),
    **dict.fromkeys(("permute", "flip"), ("input", "dims")),
    **dict.fromkeys(("add", "sub", "mul", "div", "maximum", "minimum", "matmul", "bmm"), ("input", "other")),
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _RECURRENT),
    **dict.fromkeys(("mse_loss", "l1_loss"), _LOSS),
    **dict.fromkeys(("sigmoid", "tanh"), ("input",)),
    **dict.fromkeys(("relu", "relu6", "silu", "hardswish", "hardsigmoid", "mish"), ("input", "inplace")),
    **dict.fromkeys(("dropout", "dropout1d", "dropout2d", "dropout3d"), ("input", "p", "training", "inplace")),
    "pow": ("input", "exponent"),
    "linear": ("input", "weight", "bias"),
    "layer_norm": ("input", "normalized_shape", "weight", "bias", "eps"),
    "rms_norm": ("input", "normalized_shape", "weight", "eps"),
    "group_norm": ("input", "num_groups", "weight", "bias", "eps"),
    "batch_norm": ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps"),
    "instance_norm": (
        *("input", "running_mean", "running_var", "weight", "bias", "use_input_stats", "momentum", "eps"),
    ),
    "local_response_norm": ("input", "size", "alpha", "beta", "k"),
    "normalize": ("input", "p", "dim", "eps"),
    "cosine_similarity": ("x1", "x2", "dim", "eps"),
    "norm": ("input", "p", "dim", "keepdim"),
    "vector_norm": ("input", "ord", "dim", "keepdim"),
    "gelu": ("input", "approximate"),
    "leaky_relu": ("input", "negative_slope", "inplace"),
    "prelu": ("input", "weight"),
    "elu": ("input", "alpha", "inplace"),
    "celu": ("input", "alpha", "inplace"),
    "softplus": ("input", "beta", "threshold"),
    "hardtanh": ("input", "min_val", "max_val", "inplace"),
    "clamp": ("input", "min", "max"),
    "clamp_min": ("input", "min"),
    "interpolate": ("input", "size", "scale_factor", "mode", "align_corners", "recompute_scale_factor", "antialias"),
    "grid_sample": ("input", "grid", "mode", "padding_mode", "align_corners"),
    "affine_grid": ("theta", "size", "align_corners"),
    "pad": ("input", "pad", "mode", "value"),
    "pixel_shuffle": ("input", "upscale_factor"),
    "pixel_unshuffle": ("input", "downscale_factor"),
    "channel_shuffle": ("input", "groups"),
    **dict.fromkeys(("selu", "softsign", "logsigmoid", "tanhshrink"), ("input",)),
    **dict.fromkeys(("tril", "triu"), ("input", "diagonal")),
    "topk": ("input", "k", "dim", "largest", "sorted"),
    "kthvalue": ("input", "k", "dim", "keepdim"),
    "glu": ("input", "dim"),
    "select": ("input", "dim", "index"),
    "embedding": ("input", "weight", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse"),
    "flatten": ("input", "start_dim", "end_dim"),
    "transpose": ("input", "dim0", "dim1"),
    "cat": ("tensors", "dim"),
    "stack": ("tensors", "dim"),
    "chunk": ("input", "chunks", "dim"),
    "split": ("input", "split_size", "dim"),
    "unbind": ("input", "dim"),
    "getitem": ("input", "index"),
    "setitem": ("input", "index", "value"),
    "roll": ("input", "shifts", "dims"),
    "cumsum": ("input", "dim"),
    "gather": ("input", "dim", "index"),
    **dict.fromkeys(("index_add", "index_copy"), ("input", "dim", "index", "source")),
    **dict.fromkeys(("scatter", "scatter_add"), ("input", "dim", "index", "source")),
    "masked_fill": ("input", "mask", "value"),
    "where": ("condition", "input", "other"),
    "detach": ("input",),
    "baddbmm": ("input", "batch1", "batch2"),
    "scaled_dot_product_attention": (
        *("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa"),
    ),
    "cross_entropy": (
        *("input", "target", "weight", "size_average", "ignore_index", "reduce", "reduction", "label_smoothing"),
    ),
    "logsumexp": _REDUCTION,
    "nll_loss": ("input", "target", "weight", "size_average", "ignore_index", "reduce", "reduction"),
    "smooth_l1_loss": (*_LOSS, "beta"),
    "huber_loss": ("input", "target", "reduction", "delta"),
    "kl_div": (*_LOSS, "log_target"),
    "binary_cross_entropy_with_logits": (
        *("input", "target", "weight", "size_average", "reduce", "reduction", "pos_weight"),
    ),
}
"""Parameter names, in order, of the functions that causes speak of; methods have their tensor as `input`."""

SPREAD = {"view", "reshape", "expand", "repeat", "permute", "flip"}
"""Methods that take their last argument spread out as well: `x.permute(0, 2, 1)`."""

SAME = {
    "true_divide": "div",
    "divide": "div",
    "multiply": "mul",
    "subtract": "sub",
    "concat": "cat",
    "concatenate": "cat",
    "clip": "clamp",
    "swapaxes": "transpose",
    "tensor_split": "chunk",
    "special_softmax": "softmax",
}
"""Other names of one function."""

REVERSED = {"__rsub__": "sub", "__rdiv__": "div", "__rtruediv__": "div", "__rpow__": "pow"}
"""Methods whose tensor is the second operand."""

NUMPY_KEYWORDS = {"axis": "dim", "keepdims": "keepdim"}
"""Keywords that torch takes for numpy's sake."""

NO_CALLS = {"__get__", "__set__", "backward", "grad", "requires_grad", "requires_grad_"}
"""Attributes of tensors, and what works on the graph after the unit has run."""
