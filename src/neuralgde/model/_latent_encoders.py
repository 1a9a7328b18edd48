"""Encoders of an observed window: a Gaussian over the initial values of all nodes, seen or not."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._errors import InputError
from ..graph import Graph, GraphStream
from ..nn import GCN, TCN
from ._distributions import Gaussian


class TCNEncoder(eqx.Module):
    """The paper's: a TCN over the observed nodes' trajectories side by side, read out behind the last observation.

    The window may have irregular times, gaps and padding: beside the values it is given the mask, the time since the
    step before and the time until the last one, in units of `time_scale`. It knows nodes by their number.
    """

    tcn: TCN
    readout: eqx.nn.Linear
    observed: tuple[int, ...] = eqx.field(static=True)
    num_nodes: int = eqx.field(static=True)
    time_scale: float = eqx.field(static=True)

    def __init__(
        self,
        num_nodes: int,
        observed: Sequence[int],
        in_size: int = 1,
        features: int = 1,
        hidden: int = 32,
        *,
        kernel_size: int = 3,
        dilations: Sequence[int] = (1, 4),
        time_scale: float = 1.0,
        key: PRNGKeyArray,
    ):
        self.observed = node_numbers(observed)
        if max(self.observed) >= num_nodes:
            raise InputError(f"observed: expected nodes out of 0..{num_nodes - 1}, got {max(self.observed)}.")
        self.num_nodes = num_nodes
        self.time_scale = positive(time_scale, "time_scale")
        k_tcn, k_readout = jax.random.split(key)
        channels = 2 * in_size * len(self.observed) + 2
        self.tcn = TCN(channels, hidden, hidden, kernel_size, dilations, key=k_tcn)
        self.readout = eqx.nn.Linear(hidden, 2 * num_nodes * features, key=k_readout)

    def __call__(self, stream: GraphStream) -> Gaussian:
        if stream.graphs.num_nodes != self.num_nodes:
            raise InputError(
                f"stream: expected the {self.num_nodes} nodes that the encoder was built for, observed and latent, got "
                f"{stream.graphs.num_nodes}."
            )
        places = np.array(self.observed)
        steps = len(stream)
        seen = stream.mask[:, places].reshape(steps, -1)
        values = stream.values[:, places].reshape(steps, -1)
        clock = clock_channels(stream, self.time_scale)
        rows = self.tcn(jnp.concatenate([values, seen.astype(values.dtype), clock], axis=1))
        out = self.readout(jax.nn.relu(rows[last_step(stream)]))
        return as_gaussian(out.reshape(self.num_nodes, -1))


class GraphEncoder(eqx.Module):
    """Graph layers at every time, on the graph of that time, then a TCN along each node's series, then a graph layer.

    Latent nodes learn of the observed ones over the edges. The weights are those of all nodes, so that it can be used
    on graphs of any size.
    """

    layers: tuple[GCN, ...]
    tcn: TCN
    readout: GCN
    time_scale: float = eqx.field(static=True)

    def __init__(
        self,
        in_size: int = 1,
        features: int = 1,
        hidden: int = 16,
        depth: int = 2,
        *,
        kernel_size: int = 3,
        dilations: Sequence[int] = (1, 4),
        time_scale: float = 1.0,
        key: PRNGKeyArray,
    ):
        if depth < 1:
            raise InputError(f"depth: expected 1 graph layer or more, got {depth}.")
        self.time_scale = positive(time_scale, "time_scale")
        *k_layers, k_tcn, k_readout = jax.random.split(key, depth + 2)
        sizes = [2 * in_size + 2, *[hidden] * depth]
        self.layers = tuple(GCN(a, b, key=k) for a, b, k in zip(sizes, sizes[1:], k_layers, strict=False))
        self.tcn = TCN(hidden, hidden, hidden, kernel_size, dilations, key=k_tcn)
        self.readout = GCN(hidden, 2 * features, key=k_readout)

    def __call__(self, stream: GraphStream) -> Gaussian:
        clock = clock_channels(stream, self.time_scale)
        nodes = stream.graphs.num_nodes
        inputs = jnp.concatenate(
            [stream.values, stream.mask.astype(stream.values.dtype), jnp.repeat(clock[:, None], nodes, axis=1)], axis=2
        )

        def spread(x: Array, graph: Graph) -> Array:
            graph = self.layers[0].prepare(graph)
            for layer in self.layers:
                x = jax.nn.relu(layer(x, graph))
            return x

        hidden = eqx.filter_vmap(spread, in_axes=(0, 0 if stream.changing else None))(inputs, stream.graphs)
        series = jax.vmap(self.tcn, in_axes=1, out_axes=1)(hidden)
        last = last_step(stream)
        return as_gaussian(self.readout(jax.nn.relu(series[last]), stream.graph_at(last)))


class LastValueEncoder(eqx.Module):
    """Observed nodes start where they were seen last, off by `spread` times what the encoder inside says; latent nodes,
    and features that are not observed, start as it says.
    """

    encoder: Callable[[GraphStream], Gaussian]
    observed: tuple[int, ...] = eqx.field(static=True)
    spread: float = eqx.field(static=True)

    def __init__(self, encoder: Callable[[GraphStream], Gaussian], observed: Sequence[int], spread: float = 1e-3):
        self.encoder = encoder
        self.observed = node_numbers(observed)
        self.spread = positive(spread, "spread")

    def __call__(self, stream: GraphStream) -> Gaussian:
        inside = self.encoder(stream)
        step = jnp.arange(len(stream))[:, None, None]
        last = jnp.max(jnp.where(stream.mask, step, -1), axis=0)
        value = jnp.take_along_axis(stream.values, jnp.maximum(last, 0)[None], axis=0)[0]
        nodes, features = inside.loc.shape
        known = (last >= 0) & jnp.isin(jnp.arange(nodes), np.array(self.observed))[:, None]
        wider = ((0, 0), (0, features - value.shape[1]))
        known, value = jnp.pad(known, wider), jnp.pad(value, wider)
        factor = jnp.where(known, self.spread, 1).astype(inside.loc.dtype)
        return Gaussian(jnp.where(known, value, 0) + factor * inside.loc, factor * inside.scale)


def as_gaussian(numbers: Float[Array, "nodes both"]) -> Gaussian:
    """Means and scales from two halves of as many numbers; scales stay away from zero, and start near a third."""
    mean, raw = jnp.split(numbers, 2, axis=1)
    return Gaussian(mean, jax.nn.softplus(raw - 1) + 1e-3)


def last_step(stream: GraphStream) -> Array:
    """The last step that is no padding."""
    return jnp.sum(stream.step_mask) - 1


def clock_channels(stream: GraphStream, scale: float) -> Float[Array, "times 2"]:
    """For each step the time since the one before and the time until the last one."""
    gaps = jnp.diff(stream.times, prepend=stream.times[:1])
    until = stream.times[last_step(stream)] - stream.times
    return jnp.stack([gaps, until], axis=1).astype(stream.values.dtype) / scale


def node_numbers(observed: Any) -> tuple[int, ...]:
    """The observed nodes as a tuple, from their numbers or from a boolean for every node."""
    given = np.asarray(observed)
    numbers = np.flatnonzero(given) if given.dtype == bool and given.ndim == 1 else given
    whole = numbers.ndim == 1 and numbers.size > 0 and numbers.dtype.kind in "iu"
    if not whole or len(set(numbers.tolist())) < numbers.size or numbers.min() < 0:
        raise InputError(
            f"observed: expected numbers of nodes, each once, or a boolean for every node, got {observed!r}."
        )
    return tuple(numbers.tolist())


def positive(value: float, name: str) -> float:
    if not (np.ndim(value) == 0 and np.isfinite(value) and value > 0):
        raise InputError(f"{name}: expected a positive number, got {value!r}.")
    return float(value)
