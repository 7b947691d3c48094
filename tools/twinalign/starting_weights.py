"""The initial weights of a part of a case: the reference's, converted for the port."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.convert.converter import convert_between
from twinalign.convert.options import Options
from twinalign.convert.worker import load_rules
from twinalign.errors import InputError
from twinalign.jobs import WeightFiles
from twinalign.recording import hash_arrays, save_npz, write_json
from twinalign.stages.naming import names_of_moves


def convert_weights(
    ledger: Path, files: Mapping[str, WeightFiles], models: Options, for_paddle: bool
) -> dict[str, Any]:
    """Convert a part's reference weights for the port, with a ledger of every key.

    Args:
        ledger: file to write it to.
        files: of each side; the reference's are there, and the port's layout.
        models: how both models are built and named.
        for_paddle: whether the port's weights are wanted.

    Returns:
        What each side's recorder is given, and `sha256`, the hash of the reference's weights.

    Raises:
        InputError: the reference has not been recorded, or its weights do not fit the port.
    """
    reference = files["ref"]
    try:
        with np.load(reference.arrays, allow_pickle=False) as stored:
            arrays = dict(stored)
        layout = json.loads(reference.layout.read_text(encoding="utf-8"))
    except OSError:
        raise InputError(
            f"{reference.arrays}: no reference weights; record the reference side first and copy its weights folder"
        ) from None
    sha256 = hash_arrays(arrays)
    given: dict[str, Any] = {"sha256": sha256, "ref": {"path": str(reference.arrays), "sha256": sha256}}
    if for_paddle:
        port = files["paddle"]
        own_layout = json.loads(port.layout.read_text(encoding="utf-8"))
        inputs = [str(reference.inputs)] if reference.inputs.exists() else []
        models = dataclasses.replace(models, inputs=inputs)
        load_rules(models.rules)
        conversion = convert_between(arrays, {"torch": layout, "paddle": own_layout}, models)
        save_npz(port.arrays, conversion.arrays)
        write_json(ledger, conversion.ledger.to_json())
        canonical = names_of_moves(conversion.moves, {key: array.shape for key, array in arrays.items()})
        given["paddle"] = {"path": str(port.arrays), "sha256": sha256, "canonical": canonical}
    return given
