"""What is said of an error in a float64 run, which costs the run its float64 only."""

from twinalign.processes.side_process import ChildError
from twinalign.recorder.no_float64 import why_no_float64

ASKED, REASON = "the ref side crashed while recording train in float64", "RuntimeError: Input type (torch.FloatTensor)"


def test_batches_of_a_training_are_to_be_cast_where_the_user_makes_them() -> None:
    error = ChildError(ASKED, REASON, died=False, entered="train", place="/home/user/case.py:7")
    assert why_no_float64("train", error) == (
        f"{ASKED}: {REASON}; raised at /home/user/case.py:7. If batches are in float32 there, cast them: in this "
        "training the model's parameters are in float64 (docs/how-to/align-training.md)"
    )
    assert why_no_float64("forward", error) == f"{ASKED}: {REASON}; raised at /home/user/case.py:7"


def test_what_twinalign_raises_is_not_the_users_line() -> None:
    asked = f"twinalign itself failed (stages/train.py:9): {ASKED}"
    error = ChildError(asked, REASON, died=False, entered="train", place="/home/user/case.py:7")
    assert why_no_float64("train", error) == str(error) == f"{asked}: {REASON}"
