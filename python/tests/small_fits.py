"""A model that is trained in a moment, and what tests of hl.fit ask of such trainings."""

import hotloop as hl
import numpy as np


def sums_of_steps(rng):
    """96 sequences of 6 steps, and for each the sum of its first feature."""
    x = rng.normal(size=(96, 6, 2)).astype(np.float32)
    return x, x[:, :, :1].sum(1)


def model():
    return hl.nn.Sequential(hl.nn.LSTM(2, 8), hl.nn.Last(), hl.nn.Linear(8, 1))


def same(a, b):
    """Whether two trees have the same leaves, to the bit."""
    return all(np.array_equal(x, y) for x, y in zip(hl.tree.leaves(a), hl.tree.leaves(b), strict=True))
