"""Online use of hybrid models: one observation at a time, with what is needed to put late ones in their place."""

from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from .._arrays import on_device
from .._errors import InputError, unknown_name
from ..graph import Graph, GraphStream
from ..integrate import solve_hybrid

if TYPE_CHECKING:
    from ._hybrid_gde import HybridGDE

LATE = ("refuse", "replay")


class Observation(NamedTuple):
    """What was seen at one time."""

    time: float
    x: ArrayLike
    mask: ArrayLike | None
    graph: Graph | None
    inputs: ArrayLike | None


class Anchor(NamedTuple):
    """The state after the last jump. All later states flow from here, so that looking ahead changes nothing."""

    time: float
    z: Float[Array, "nodes state"]
    graph: Graph


class HybridState(eqx.Module):
    """A hybrid model at a time: `z`, (nodes, state), at `time`, on `graph`."""

    time: float = eqx.field(static=True)
    z: Float[Array, "nodes state"]
    anchor: Anchor
    history: tuple[tuple[Anchor, Observation], ...]
    keep: int = eqx.field(static=True)

    @property
    def graph(self) -> Graph:
        return self.anchor.graph


def start(model: "HybridGDE", graph: Graph, t0: float, keep: int) -> HybridState:
    if not isinstance(keep, int) or keep < 0:
        raise InputError(f"keep: expected how many observations to keep, 0 or more, got {keep!r}.")
    return _at_anchor(Anchor(_finite(t0, "t0"), model.initial_state(graph), graph), (), keep)


def observe(model: "HybridGDE", state: HybridState, seen: Observation, late: str) -> HybridState:
    if late not in LATE:
        raise InputError(unknown_name("way with late observations", late, LATE))
    t = _finite(seen.time, "t")
    if t >= state.time:
        return _after(model, state.anchor, seen, state.history, state.keep)
    if late == "refuse":
        raise InputError(
            f"t: expected an observation no older than the state, which is at {state.time}, got {t}. Pass "
            "late='replay' to put it in its place."
        )
    history, anchor, again = state.history, state.anchor, []
    while history and history[-1][1].time > t:
        *earlier, (anchor, later) = history
        history, again = tuple(earlier), [later, *again]
    if anchor.time > t:
        raise InputError(
            f"t: {t} is before {anchor.time}, the oldest state that was kept. Start with keep=… to keep more than "
            f"{state.keep} observations."
        )
    new = _at_anchor(anchor, history, state.keep)
    for observation in [seen, *again]:
        new = _after(model, new.anchor, observation, new.history, state.keep)
    return advance(model, new, state.time) if state.time > new.time else new


def advance(model: "HybridGDE", state: HybridState, t: float) -> HybridState:
    t = _finite(t, "t")
    if t < state.time:
        raise InputError(f"t: expected a time no earlier than the state's {state.time}, got {t}.")
    z = _flow(model, state.anchor, [t])[0]
    return HybridState(t, z, state.anchor, state.history, state.keep)


def forecast(model: "HybridGDE", state: HybridState, times: Any) -> Any:
    states = _flow(model, state.anchor, np.atleast_1d(np.asarray(times, float)))
    seen = on_device(np.zeros(states.shape[0], np.int32))
    return model._read_all(_still(model, state.anchor), states, seen)


def _after(model, anchor: Anchor, seen: Observation, history: tuple, keep: int) -> HybridState:
    """The state after an observation that is not older than the anchor."""
    graph = anchor.graph if seen.graph is None else seen.graph
    if graph.num_nodes != anchor.graph.num_nodes:
        raise InputError(
            f"graph: expected the {anchor.graph.num_nodes} nodes of the state, got {graph.num_nodes}. Start with room "
            "for all nodes that may join, and switch them by the graph's node_mask."
        )
    t = [seen.time]
    mask, inputs = (None if a is None else np.asarray(a)[None] for a in (seen.mask, seen.inputs))
    stream = GraphStream(t, np.asarray(seen.x)[None], graph, mask, inputs)
    before = _flow(model, anchor, t)[0]
    z = solve_hybrid(None, model._jump(), before, stream).after[0]
    z = jnp.where(graph.node_mask[:, None], z, model.initial_state(graph))
    history = (*history, (anchor, seen))
    return _at_anchor(Anchor(seen.time, z, graph), history[max(len(history) - keep, 0) :], keep)


def _flow(model: "HybridGDE", anchor: Anchor, times: Any) -> Array:
    stream = _still(model, anchor)
    options = {**model.config.kwargs(), "event": model.event}
    return solve_hybrid(model.flow, _stay(model), anchor.z, stream, times, **options).states


class _Stay(eqx.Module):
    """No jump; the graph as the model's own jump wants it."""

    jump: Any

    def prepare(self, graph: Graph) -> Graph:
        return self.jump.prepare(graph) if hasattr(self.jump, "prepare") else graph

    def __call__(self, t, z, x, mask, graph):
        return z


def _stay(model: "HybridGDE") -> _Stay:
    return _Stay(model._jump())


def _still(model: "HybridGDE", anchor: Anchor) -> GraphStream:
    """A stream with nothing to see but the anchor's time and graph."""
    return GraphStream([anchor.time], np.full((1, anchor.graph.num_nodes, 1), np.nan), anchor.graph)


def _at_anchor(anchor: Anchor, history: tuple, keep: int) -> HybridState:
    return HybridState(anchor.time, anchor.z, anchor, history, keep)


def _finite(t: Any, name: str) -> float:
    t = float(t)
    if not np.isfinite(t):
        raise InputError(f"{name}: expected a finite time, got {t}.")
    return t
