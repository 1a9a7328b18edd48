"""Temporal convolutional network (Bai et al. 2018): causal, dilated convolutions over time."""

from collections.abc import Sequence

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from .._errors import InputError


class TCN(eqx.Module):
    """One series, (times, in) -> (times, out): a residual block for each dilation, then a linear map.

    Row k of the result depends on rows 0..k of the input only, and on no more than
    1 + 2 (kernel_size - 1) sum(dilations) of them.
    """

    blocks: tuple["_Block", ...]
    readout: eqx.nn.Linear

    def __init__(
        self,
        in_size: int,
        hidden: int,
        out_size: int,
        kernel_size: int = 3,
        dilations: Sequence[int] = (1, 2, 4),
        *,
        key: PRNGKeyArray,
    ):
        if kernel_size < 1 or any(d < 1 for d in dilations):
            raise InputError(
                f"kernel_size and dilations: expected 1 or more, got {kernel_size} and {tuple(dilations)}."
            )
        *keys, k_readout = jax.random.split(key, len(dilations) + 1)
        sizes = [in_size, *[hidden] * len(dilations)]
        self.blocks = tuple(
            _Block(size, hidden, kernel_size, d, key=k) for size, d, k in zip(sizes, dilations, keys, strict=False)
        )
        self.readout = eqx.nn.Linear(sizes[-1], out_size, key=k_readout)

    def __call__(self, x: Float[Array, "times in"]) -> Float[Array, "times out"]:
        channels = x.T
        for block in self.blocks:
            channels = block(channels)
        return jax.vmap(self.readout)(channels.T)


class _Block(eqx.Module):
    """Two causal convolutions with ReLU, around which the input passes, through a linear map where sizes differ."""

    first: eqx.nn.Conv1d
    second: eqx.nn.Conv1d
    skip: eqx.nn.Conv1d | None

    def __init__(self, in_size: int, out_size: int, kernel_size: int, dilation: int, *, key: PRNGKeyArray):
        k_first, k_second, k_skip = jax.random.split(key, 3)
        # All padding is on the left: no output sees a later input.
        causal = {"padding": [((kernel_size - 1) * dilation, 0)], "dilation": dilation}
        self.first = eqx.nn.Conv1d(in_size, out_size, kernel_size, **causal, key=k_first)
        self.second = eqx.nn.Conv1d(out_size, out_size, kernel_size, **causal, key=k_second)
        self.skip = None if in_size == out_size else eqx.nn.Conv1d(in_size, out_size, 1, key=k_skip)

    def __call__(self, x: Float[Array, "in times"]) -> Float[Array, "out times"]:
        out = jax.nn.relu(self.second(jax.nn.relu(self.first(x))))
        return jax.nn.relu(out + (x if self.skip is None else self.skip(x)))
