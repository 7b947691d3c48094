"""Which tensors of the port stand for those of the reference."""

from types import SimpleNamespace

from twinalign.replay.forced_tensors import ForcedTensors
from twinalign.replay.layer_calls import Tensor


def test_one_tensor_that_the_reference_takes_twice_has_one_place():
    tensors = object.__new__(ForcedTensors)
    taken = SimpleNamespace(shape=[2])
    tensors._shared = {id(taken): (taken, 7, None)}
    twice = [Tensor(7, [2], "float64"), Tensor(7, [2], "float64")]
    assert tensors.order([taken], twice) == [0]
