"""What the six stages and the check of initial weights record on a side; `run` and pipeline scripts share them."""

import dataclasses
from collections.abc import Callable

from twinalign.sides import INITIAL
from twinalign.stages.backward import record_backward
from twinalign.stages.context import StageContext
from twinalign.stages.data import record_data
from twinalign.stages.forward import record_forward
from twinalign.stages.initial import record_initial
from twinalign.stages.loss import record_loss
from twinalign.stages.metric import record_metric
from twinalign.stages.train import record_train


@dataclasses.dataclass(frozen=True)
class Stage:
    """One stage of the alignment guide."""

    name: str
    file_stem: str
    """Stem of the recording in `result/`: the field calls backward's file `losses`."""
    record: Callable[[StageContext], None]
    needs_model: bool = True
    """Whether the stage needs the case's model with its weights."""
    float64: bool = True
    """Whether a float64 recording means anything for this stage."""

    @property
    def judged_in_any_precision(self) -> bool:
        """Whether it computes with the model, so that a half precision or other kernels change what it records."""
        return self.needs_model and self.float64


STAGE_BY_NAME = {
    stage.name: stage
    for stage in (
        Stage("forward", "forward", record_forward),
        Stage("data", "data", record_data, needs_model=False, float64=False),
        Stage("metric", "metric", record_metric),
        Stage("loss", "loss", record_loss),
        Stage("backward", "losses", record_backward),
        Stage("train", "train", record_train),
        Stage(INITIAL, "initial", record_initial, float64=False),
    )
}
