"""Batch normalisation of the projection heads, the convolutional stem and the ResNets.

This side is the reference: torch's own layers, unchanged. The file exists so that the other twin, whose framework
keeps other running statistics, has a place for the layers that close the gap.
"""

from __future__ import annotations

from torch.nn import BatchNorm1d, BatchNorm2d

__all__ = ["BatchNorm1d", "BatchNorm2d"]
