"""The two sides of a case, the frameworks that record them, and the names of stages and precisions."""

SIDES = ("ref", "paddle")
FRAMEWORK_OF_SIDE = {"ref": "torch", "paddle": "paddle"}
"""The framework that records each side: the reference is torch, the reproduced port is paddle."""

STAGES = ("forward", "data", "metric", "loss", "backward", "train")
"""The six stages of the alignment guide, in order."""

HALVES = ("float16", "bfloat16")
PRECISIONS = ("float32", "float64", "both", *HALVES)
"""`both` is float32 checked by float64; a half precision is checked by float64 too."""

FOUND = "found"
"""In place of a side, where progress is told: a text that stays on the screen, such as the verdict of a stage."""

INITIAL = "initial"
"""The check of the initial weights, the guide's tenth step, which stands beside the stages."""

SWAPS = ("data", "init", "updates", "network")
"""The reference's batches, first weights, or weights after each step; `network`: all three, so that only the network is
the port's."""


def stage_number(stage: str) -> str:
    """The number of a stage in the guide, also if a run leaves others out; empty for what is no stage of it."""
    return f"{STAGES.index(stage) + 1:02d}" if stage in STAGES else ""
