"""Token batches for the trainers, from numpy alone."""

import numpy as np

WORDS, LENGTH, PADDING = 40, 12, 0


def micro_batches(steps, accumulate, fault=""):
    """Per step a list of `(tokens, labels)`, int64 of shape (4, LENGTH); labels are shifted, -100 where padded."""
    random = np.random.RandomState(5)
    lengths = np.array([12, 9, 6, 4])
    found = []
    for _ in range(steps):
        of_step = []
        for _ in range(accumulate):
            tokens = random.randint(1, WORDS, (4, LENGTH + 1))
            for row, length in enumerate(random.permutation(lengths)):
                tokens[row, length + 1 :] = PADDING
            labels = tokens[:, 1:].copy()
            if fault != "padding_counted":
                labels[labels == PADDING] = -100
            if fault == "labels_shifted_twice":
                labels = np.concatenate([labels[:, 1:], np.full((4, 1), -100)], 1)
            if fault == "other_order":
                tokens, labels = tokens[::-1].copy(), labels[::-1].copy()
            of_step.append((tokens[:, :-1].copy(), labels))
        found.append(of_step)
    if fault == "other_batches":
        found = found[1:] + found[:1]
    return found
