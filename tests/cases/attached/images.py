"""Batches of images for the trainers, from numpy alone."""

import numpy as np


def image_batches(steps, ranks=1, rank=0):
    """Per step `(images, labels)`: float64 of shape (8 / ranks, 3, 8, 8) and int64, a rank's share of the batch."""
    random = np.random.RandomState(3)
    for _ in range(steps):
        images, labels = random.randn(8, 3, 8, 8), random.randint(0, 5, 8)
        share = slice(rank * 8 // ranks, (rank + 1) * 8 // ranks)
        yield images[share], labels[share]


def gan_batches(steps):
    """Per step float32 `(images, noise)` of shapes (6, 3, 8, 8) and (6, 6)."""
    random = np.random.RandomState(11)
    for _ in range(steps):
        yield np.tanh(random.randn(6, 3, 8, 8)).astype("float32"), random.randn(6, 6).astype("float32")


def detector_batches(epochs, per_epoch=2):
    """Per epoch batches of inputs (8, 10), labels (8,), boxes (8, 4) and whether a row has a box (8,)."""
    random = np.random.RandomState(2)
    for _ in range(epochs):
        epoch = []
        for _ in range(per_epoch):
            inputs, labels = random.randn(8, 10), random.randint(0, 4, 8)
            boxes, valid = random.randn(8, 4), random.rand(8) > 0.4
            epoch.append((inputs.astype("float32"), labels, boxes.astype("float32"), valid.astype("float32")))
        yield epoch
