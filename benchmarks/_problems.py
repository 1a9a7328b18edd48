"""Data and weights that all contenders share, in plain NumPy, and what a graph convolution needs at least."""

import itertools
from typing import NamedTuple

import numpy as np

from ._harness import Least


class Layers(NamedTuple):
    """The weights (in, out) and biases (out,) of a GCDE, with an axis of seeds in front where there are several."""

    weights: list[np.ndarray]
    biases: list[np.ndarray]


def layers(widths: tuple[int, ...], seed: int = 0, copies: int | None = None) -> Layers:
    """Glorot's uniform weights; biases that are not zero, so that their gradients are tested too."""
    rng = np.random.default_rng(seed)
    lead = () if copies is None else (copies,)
    weights, biases = [], []
    for a, b in itertools.pairwise(widths):
        bound = np.sqrt(6 / (a + b))
        weights.append(rng.uniform(-bound, bound, (*lead, a, b)).astype(np.float32))
        biases.append(rng.uniform(-0.1, 0.1, (*lead, b)).astype(np.float32))
    return Layers(weights, biases)


def normalised(adjacency: np.ndarray) -> np.ndarray:
    """D^-1/2 (A + I) D^-1/2 of symmetric adjacencies without self loops, any number of leading axes."""
    a = adjacency + np.eye(adjacency.shape[-1])
    scale = a.sum(-1) ** -0.5
    return (scale[..., :, None] * a * scale[..., None, :]).astype(np.float32)


def least_of_gcde(
    nodes: int, entries: int, widths: tuple[int, ...], evaluations: int, *, matrix_bytes: int, in_cache: bool
) -> Least:
    """Forward and backward of so many evaluations of a GCDE whose operator has so many entries.

    Forward, each layer multiplies by the operator (over the fewer features) and by its weights; backward, once by the
    transposed operator and twice for the weights. Every block is read and written once per product where it does
    not fit in the caches, and once in all where it does.
    """
    pairs = list(itertools.pairwise(widths))
    sparse = sum(2 * entries * min(a, b) for a, b in pairs)
    dense = sum(2 * nodes * a * b for a, b in pairs)
    operations = evaluations * (2 * sparse + 3 * dense)
    if in_cache:
        moved = 2 * matrix_bytes + 4 * nodes * (widths[0] + widths[-1])
    else:
        # Forward each layer reads its input and writes its output; backward it also reads the input once more.
        moved = evaluations * sum(2 * matrix_bytes + 4 * nodes * (2 * (a + b) + a) for a, b in pairs)
    return Least(operations, moved)
