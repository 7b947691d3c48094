"""The input on which both models are run: given by the user, or guessed from the first layer."""

from collections.abc import Sequence

import numpy as np

from twinalign.conversion.layers_to_match import Matchable
from twinalign.errors import InputError

_PICTURE, _CLIP, _LENGTH, _TOKENS = 224, 16, 64, 16


def parse_inputs(specifications: Sequence[str]) -> dict[str, np.ndarray]:
    """Arrays in the order in which the models take them.

    A specification is an .npz file, a shape such as `2,3,224,224` (standard normal), or `2,16:1000` (integers below
    1000). Raises InputError for anything else.
    """
    generator = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {}
    for number, text in enumerate(specifications):
        if text.endswith(".npz"):
            try:
                with np.load(text, allow_pickle=False) as file:
                    arrays.update({name: file[name] for name in file.files})
            except (OSError, ValueError) as error:
                raise InputError(f"--input {text}: {error}") from None
            continue
        sizes, colon, below = text.partition(":")
        try:
            shape = tuple(int(size) for size in sizes.replace("x", ",").split(","))
            limit = int(below) if colon else 0
            if min(shape) < 1 or (colon and limit < 1):
                raise ValueError
        except ValueError:
            raise InputError(
                f"--input {text}: give an .npz file, a shape such as 2,3,224,224, or a shape and a limit for whole "
                "numbers such as 2,16:1000"
            ) from None
        arrays[f"input{number}"] = generator.integers(0, limit, shape) if colon else generator.standard_normal(shape)
    return arrays


def guess_inputs(matchables: Sequence[Matchable], specifications: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """The user's inputs, or one that fits the first layer of the reference: for Conv2d, pictures of 224 pixels.

    Raises InputError if the first layer does not determine the input.
    """
    if specifications:
        return parse_inputs(specifications)
    for matchable in matchables:
        shapes = dict(matchable.signature[1])
        layer = matchable.stored[0].entry.bases[0].rsplit(".", 1)[-1]
        weight = next((part.slots[0].shape for part in matchable.stored if len(part.slots[0].shape) >= 2), None)
        if weight is None or matchable.kind == "raw":
            continue
        if matchable.kind == "convolution":
            extent = {3: (_LENGTH,), 4: (_PICTURE, _PICTURE), 5: (_CLIP, 32, 32)}.get(len(weight))
            if extent is not None:
                return parse_inputs([",".join(map(str, (2, weight[1], *extent)))])
        if matchable.kind == "linear":
            return parse_inputs([f"2,{weight[1]}"])
        if matchable.kind == "embedding":
            return parse_inputs([f"2,{_TOKENS}:{weight[0]}"])
        if matchable.kind in ("recurrent", "multi-head attention"):
            return parse_inputs([f"2,{_TOKENS},{weight[1]}"])
        raise InputError(
            f"the models' input is not clear from their first layer ({layer}, {sorted(shapes)}); give it with --input"
        )
    raise InputError("the models' input is not clear from their layers; give it with --input")
