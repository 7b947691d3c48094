"""Stage 02: the samples that each side's input pipeline returns."""

from twinalign.case.samples import first_samples
from twinalign.stages.context import StageContext


def record_data(context: StageContext) -> None:
    """Record the first `Case.data_samples` samples of every split, in the pipeline's own dtypes."""
    for split in context.case.splits:
        samples = context.case.dataset(context.framework, split)
        for index, sample in enumerate(first_samples(samples, context.case.data_samples)):
            context.add(f"{split}.{index}", sample)
        context.progress(f"{split} read")
    if not context.recording.arrays:
        raise ValueError(f"{context.case.name}: dataset() returned no sample in the splits {list(context.case.splits)}")
