"""GCDE-GRU, its discrete sibling GCGRU, and what a forecaster of sensors needs besides, by option."""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import PRNGKeyArray

from .._errors import InputError
from ..field import GCDE
from ..integrate import HybridConfig
from ..nn import GCGRU, LearnedAdjacency, NodeMLP
from ._heads import AbstractHead, make_head
from ._hybrid_gde import HybridGDE
from ._memory import Layout, MemoryFlow, MemoryHead, MemoryJump

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
# The age grows in a straight line: one step is exact.
STILL = HybridConfig(solver="euler", num_steps=1)


def gcde_gru(
    features: int,
    hidden: int = 46,
    *,
    key: PRNGKeyArray,
    inputs: int = 0,
    operator: str | tuple[str, ...] = "gcn",
    residual: bool = False,
    period: float | None = None,
    time_scale: float = 1.0,
    hold_unobserved: bool = True,
    num_nodes: int | None = None,
    rank: int = 10,
    embedding: int = 0,
    head: str | AbstractHead = "point",
    levels: tuple[float, ...] = LEVELS,
    config: HybridConfig | None = None,
) -> HybridGDE:
    """The paper's GCDE-GRU: flow by two graph convolutions, tanh between, jump by a GCGRU cell, a head of two layers.

    **Arguments**

    - `features`: what is observed of a node, and forecast; `inputs`: the channels of the stream's known inputs.
    - `operator`: the path along the graph, or several: "self" past it, "learned" by an adjacency of low `rank` that is
      learned, which needs `num_nodes`.
    - `residual`: forecast the change from the last value seen.
    - `period`: that of the time of day, in the stream's units of time; sine and cosine of it become features.
    - `time_scale`: what counts as a long time: ages are measured in it, and the flow is slower by it.
    - `hold_unobserved`: a node of which nothing was observed leaves its state as it is, or hears its neighbours.
    - `embedding`: the size of a vector of its own that each node has among its features; it needs `num_nodes`.
    - `head`: "point", "gaussian", "student_t", or "quantiles" at `levels`: distributions with `mean`, `quantile(level)`
      and a `loss(y)` to train on.
    - `config`: how to solve; by default two Heun steps in every interval.
    """
    flow_key, rest_key = jax.random.split(key)
    layout = Layout(hidden, features)
    flow = MemoryFlow(GCDE((hidden, hidden, hidden), operator=operator, key=flow_key), layout, time_scale)
    head = make_head(head, levels)
    cell_key, vector_key, head_key, adjacency_key = jax.random.split(rest_key, 4)
    jump = MemoryJump(
        lambda size: GCGRU(size, layout.hidden, operator=operator, key=cell_key),
        layout,
        inputs=inputs,
        period=period,
        time_scale=time_scale,
        hold_unobserved=hold_unobserved,
        num_nodes=num_nodes,
        embedding=embedding,
        key=vector_key,
    )
    layer = NodeMLP(layout.hidden + 1, head.numbers * layout.features, layout.hidden, 1, key=head_key)
    readout = MemoryHead(layer, head, layout, time_scale, residual)
    adjacency = None
    if "learned" in ((operator,) if isinstance(operator, str) else operator):
        if num_nodes is None:
            raise InputError("num_nodes: a learned adjacency needs the number of nodes, got None.")
        adjacency = LearnedAdjacency(num_nodes, rank, key=adjacency_key)
    return HybridGDE(flow, jump, readout, adjacency=adjacency, config=config or HybridConfig())


def gcgru(features: int, hidden: int = 46, *, key: PRNGKeyArray, **options: Any) -> HybridGDE:
    """GCDE-GRU without the flow: h stands still between observations. The options are those of `gcde_gru`.

    It knows the time that passed all the same: the age of the last value is a feature of the cell and of the head.
    """
    model = gcde_gru(features, hidden, key=key, config=STILL, **options)
    return eqx.tree_at(lambda m: m.flow, model, MemoryFlow(None, Layout(hidden, features)))
