"""Stage 02: what each side's input pipeline delivers, sample by sample."""

from __future__ import annotations

import itertools

from twinalign.stages.context import StageContext


def record_data(context: StageContext) -> None:
    """Record the first `Case.data_samples` samples of every split, in the dtype that the pipeline gives them."""
    for split in context.case.splits:
        samples = context.case.dataset(context.framework, split)
        for index, sample in enumerate(itertools.islice(iter(samples), context.case.data_samples)):
            context.add(f"{split}.{index}", sample)
        context.progress(f"{split} read")
    if not context.recording.arrays:
        raise ValueError(f"{context.case.name}: dataset() gave no sample in the splits {list(context.case.splits)}")
