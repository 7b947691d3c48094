"""What is said where one side's code does not run in float64."""

from twinalign.processes.side_process import ChildError


def why_no_float64(stage: str, error: Exception) -> str:
    """The error with the user's line that it was raised from, and what to change in a training."""
    if not isinstance(error, ChildError) or not error.place or error.own:
        return str(error)
    text = f"{error}; raised at {error.place}"
    if stage == "train" and error.entered == "train":
        text += (
            ". If batches are in float32 there, cast them: in this training the model's parameters are in float64 "
            "(docs/how-to/align-training.md)"
        )
    return text
