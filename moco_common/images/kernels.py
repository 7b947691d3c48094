"""Pillow's colour operations and Gaussian blur as compiled loops, with Pillow's roundings.

An image is three planes here, (3, height, width) uint8, contiguous: red, green and blue apart, so that the compiler can
make vector instructions of every loop. An operation returns new planes. Number types are chosen, and casts written, so
that each result equals Pillow's even next to a rounding edge; hence no `fastmath`, which would reorder sums. Only one
core is used (no `parallel`): loaders have a process for each core.

Importing this takes numba. `pixels.py` does so when the first view is made, and uses only what gives Pillow's pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numpy import float32, float64, int32, uint8, uint32

BLUR_PASSES = 3
"""Box blurs that make a Gaussian blur, in each direction."""
ONE = 1 << 24
"""What a box blur's weights add up to."""


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile at the first call, and keep the machine code beside this file or in the user's cache for later processes.

    `NUMBA_CACHE_DIR` names another folder for it.
    """
    options = {"nogil": True, "error_model": "numpy"}  # numpy's model: a division by 0 raises nothing
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # neither folder can be written: every process compiles
        return numba.njit(**options)(function)


@compiled
def luma(planes: np.ndarray) -> np.ndarray:
    """How bright each pixel is (ITU-R 601-2, as Pillow's "L"): (height, width) uint8."""
    flat = planes.reshape(3, planes[0].size)
    red, green, blue = flat[0], flat[1], flat[2]
    made = np.empty(planes.shape[1:], uint8)
    result = made.reshape(made.size)
    for k in range(result.size):
        # The weights are in 1/65536. All sums are whole numbers below 2^24, and so exact in float32.
        total = float32(19595) * float32(red[k]) + float32(38470) * float32(green[k]) + float32(7471) * float32(blue[k])
        result[k] = uint8(int32((total + float32(32768)) * float32(1 / 65536)))
    return made


@compiled
def blend(base: np.ndarray, planes: np.ndarray, factor: float) -> np.ndarray:
    """Interpolate by float32 `factor` from `base`, (height, width) uint8, to each plane, and truncate."""
    made = np.empty_like(planes)
    start = base.reshape(base.size)
    for channel in range(3):
        plane, result = planes[channel].reshape(base.size), made[channel].reshape(base.size)
        for k in range(base.size):
            value = float32(start[k]) + factor * (float32(plane[k]) - float32(start[k]))
            result[k] = uint8(int32(min(max(value, float32(0)), float32(255))))
    return made


@compiled
def hue_of(red: float, green: float, blue: float, high: float, chroma: float) -> int:
    """The hue of a colour with a chroma of its own, from 0 to 255 for the whole circle."""
    to_red, to_green, to_blue = (high - red) / chroma, (high - green) / chroma, (high - blue) / chroma
    if red == high:
        sixths = to_blue - to_green
    elif green == high:
        sixths = float32(2.0 + float64(to_red) - float64(to_blue))
    else:
        sixths = float32(4.0 + float64(to_green) - float64(to_red))
    turns = float64(sixths) / 6.0 + 1.0
    return int32(float32(turns - int32(turns)) * float32(255))


@compiled
def lowered(high: float, share: float) -> int:
    """The highest channel's value minus a share of it, rounded to the nearest whole number."""
    return uint8(int32(high * (float32(1) - share) + float32(0.5)))


@compiled
def turn_hue(planes: np.ndarray, shift: int) -> np.ndarray:
    """Every colour by way of Pillow's HSV and back, its hue int32 `shift` of 256 steps further on the circle."""
    pixels = planes[0].size
    flat, made = planes.reshape(3, pixels), np.empty_like(planes)
    result = made.reshape(3, pixels)
    for k in range(pixels):
        red, green, blue = float32(flat[0, k]), float32(flat[1, k]), float32(flat[2, k])
        high, low = max(red, green, blue), min(red, green, blue)
        # Gray has no hue and needs none; the 1 avoids a division by 0.
        chroma = high - low if high > low else float32(1)
        steps = (hue_of(red, green, blue, high, chroma) + shift) & int32(255)
        saturation = int32((high - low) / max(high, float32(1)) * float32(255))
        place = float32(steps) * float32(6) / float32(255)
        sixth = int32(place)
        along, strength = place - float32(sixth), float32(saturation) / float32(255)
        lowest = lowered(high, strength)
        falling, rising = lowered(high, strength * along), lowered(high, strength * (float32(1) - along))
        full = uint8(int32(high))
        if sixth == 0 or sixth == 6:
            color = full, rising, lowest
        elif sixth == 1:
            color = falling, full, lowest
        elif sixth == 2:
            color = lowest, full, rising
        elif sixth == 3:
            color = lowest, falling, full
        elif sixth == 4:
            color = rising, lowest, full
        else:
            color = full, lowest, falling
        result[0, k], result[1, k], result[2, k] = color
    return made


@compiled
def weigh_row(
    sums: np.ndarray,
    before: np.ndarray,
    first: np.ndarray,
    after: np.ndarray,
    inner: int,
    edge: int,
    result: np.ndarray,
) -> None:
    """One row of a box blur; moves the sums on to the next row.

    Args:
        sums: (width,) uint32, of the rows within the radius.
        before, first, after: (width,) uint8, the row before these, their first, and the row after them.
        inner, edge: as `box_blur_columns` has them.
        result: (width,) uint8, to be filled.
    """
    for k in range(sums.size):
        rim = uint32(before[k]) + uint32(after[k])
        result[k] = uint8(uint32(uint32(sums[k] * inner) + uint32(rim * edge) + uint32(ONE // 2)) >> uint32(24))
        sums[k] = uint32(sums[k] + uint32(after[k]) - uint32(first[k]))


@compiled
def box_blur_columns(planes: np.ndarray, radius: int, inner: int, edge: int) -> np.ndarray:
    """Blur along the columns, `BLUR_PASSES` times by a box, rounded each time; the first and last row go on outside.

    Args:
        planes: (3, height, width) uint8.
        radius: how many rows on either side of a row count in full.
        inner: their weight and the row's own, uint32, in 1/ONE.
        edge: the weight of the next row on either side, uint32, in 1/ONE.
    """
    height, width = planes.shape[1:]
    last = height - 1
    made = planes.copy()
    sums = np.empty(width, uint32)
    for channel in range(3):
        for _ in range(BLUR_PASSES):
            target = made[channel]
            source = target.copy()
            for k in range(width):
                sums[k] = uint32(source[0, k]) * uint32(radius + 1)
            for y in range(1, radius + 1):
                row = source[min(y, last)]
                for k in range(width):
                    sums[k] = uint32(sums[k] + uint32(row[k]))
            for y in range(height):
                before, first, after = max(y - radius - 1, 0), max(y - radius, 0), min(y + radius + 1, last)
                weigh_row(sums, source[before], source[first], source[after], inner, edge, target[y])
    return made


def box_weights(sigma: float) -> tuple[int, int, int]:
    """The box whose repetition comes next to a Gaussian: radius, inner and edge weight of `box_blur_columns`.

    The formulae are (7), (11) and (14) of Gwosdek et al., "Theoretical Foundations of Gaussian Convolution by Extended
    Box Filtering" (SSVM 2011), which Pillow names as its source; the number types are Pillow's.
    """
    one, three = float32(1), float32(3)
    variance = float32(sigma) * float32(sigma) / float32(BLUR_PASSES)
    length = float32(math.sqrt(12.0 * float(variance) + 1.0))
    whole = float32(math.floor((float(length) - 1.0) / 2.0))
    rest = (float32(2) * whole + one) * (whole * (whole + one) - three * variance)
    rest /= float32(6) * (variance - (whole + one) * (whole + one))
    radius = whole + rest
    inner = int(float32(ONE) / (radius * float32(2) + one))
    return int(radius), inner, (ONE - (2 * int(radius) + 1) * inner) // 2


# The operations as `pixels.py` calls them: planes and a strength in, planes out.


def brightness(planes: np.ndarray, factor: float) -> np.ndarray:
    """`factor` of the way from black."""
    return blend(np.zeros(planes.shape[1:], uint8), planes, float32(factor))


def contrast(planes: np.ndarray, factor: float) -> np.ndarray:
    """`factor` of the way from the gray of the mean luma."""
    gray = luma(planes)
    return blend(np.full_like(gray, int(gray.mean(dtype=float64) + 0.5)), planes, float32(factor))


def saturation(planes: np.ndarray, factor: float) -> np.ndarray:
    """`factor` of the way from each pixel's own gray."""
    return blend(luma(planes), planes, float32(factor))


def hue(planes: np.ndarray, shift: float) -> np.ndarray:
    """Hues shifted by a share of the circle, in whole steps of 1/255 (`int(255 * shift)`)."""
    return turn_hue(planes, int32(int(255 * shift)))


def grayscale(planes: np.ndarray) -> np.ndarray:
    """Each pixel's gray in all three channels."""
    return np.stack([luma(planes)] * 3)


def blur(planes: np.ndarray, sigma: float) -> np.ndarray:
    """Gaussian blur of this standard deviation in pixels: along the rows, then along the columns."""
    radius, inner, edge = box_weights(sigma)
    for _ in range(2):
        turned = np.ascontiguousarray(planes.transpose(0, 2, 1))
        planes = box_blur_columns(turned, radius, uint32(inner), uint32(edge))
    return planes
