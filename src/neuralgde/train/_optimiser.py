"""Optimisers by name, without the rate: that is a schedule's business."""

import functools
from collections.abc import Callable

import optax

# What turns a gradient into a direction; the loop subtracts the rate times it.
OPTIMISERS: dict[str, Callable[[], optax.GradientTransformation]] = {
    "adam": optax.scale_by_adam,
    "adamw": optax.scale_by_adam,
    "rmsprop": lambda: optax.scale_by_rms(decay=0.99),
    "sgd": optax.identity,
}


# One object per setting: compiled programs are found again by it.
@functools.lru_cache
def make_optimiser(name: str, weight_decay: float, clip: float | None) -> optax.GradientTransformation:
    """The chain: clip the gradient, add the weight decay, scale."""
    parts = [] if clip is None else [optax.clip_by_global_norm(clip)]
    decay = [optax.add_decayed_weights(weight_decay)] if weight_decay else []
    scale = [OPTIMISERS[name]()]
    return optax.chain(*parts, *(scale + decay if name == "adamw" else decay + scale))
