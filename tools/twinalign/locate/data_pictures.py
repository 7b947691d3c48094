"""Pictures of arrays that hold images, for a person to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


def keep_pictures(worker: Any, arrays: list[str], stem: str) -> dict[str, Any]:
    """Write a PNG for each array beside it; called in a process whose interpreter has Pillow.

    Args:
        worker: the recorder that calls.
        arrays: `.npy` files of the reference's image and the port's.
        stem: path of the pictures without `_ref.png` and `_paddle.png`.

    Returns:
        `arrays` and `pictures`: paths; no pictures where the arrays are no images or Pillow is missing.
    """
    loaded = [np.load(path, allow_pickle=False) for path in arrays]
    images = [as_picture(array, loaded[0]) for array in loaded]
    paths: list[str] = []
    try:
        from PIL import Image
    except ImportError:
        return {"arrays": arrays, "pictures": paths}
    for image, side in zip(images, ("ref", "paddle"), strict=True):
        if image is not None:
            path = Path(f"{stem}_{side}.png")
            Image.fromarray(image).save(path)
            paths.append(str(path))
    return {"arrays": arrays, "pictures": paths}


def as_picture(array: np.ndarray, scale_of: np.ndarray) -> np.ndarray | None:
    """An array as uint8 `[height, width]` or `[height, width, 3]`; None where it is no image.

    Args:
        array: one image or a batch, whose first is taken, channels first or last, of any range.
        scale_of: the array whose range becomes that of the picture, so that two pictures can be held side by side.
    """
    while array.ndim > 3:
        array = array[0]
    if array.ndim == 3 and array.shape[0] in (1, 3) and array.shape[-1] not in (1, 3):
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[-1] == 1:
        array = array[..., 0]
    if not (array.ndim == 2 or (array.ndim == 3 and array.shape[-1] == 3)) or not array.size:
        return None
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    low, high = float(np.nanmin(scale_of)), float(np.nanmax(scale_of))
    values = (np.nan_to_num(array.astype(np.float64)) - low) / ((high - low) or 1.0)
    return np.ascontiguousarray((values.clip(0.0, 1.0) * 255).round().astype(np.uint8))
