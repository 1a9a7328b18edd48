"""The models of the traffic experiment, by the names they have in its tables."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jaxtyping import PRNGKeyArray

from ..forecast import start_small
from ..integrate import HybridConfig
from ..model import HybridGDE, gcde_gru, gcgru, gru
from ..train import TrainConfig

if TYPE_CHECKING:
    from .traffic import TrafficConfig

PAPER = ("GRU", "GCGRU", "GCDE-GRU")
OURS = ("GCGRU+", "GCDE-GRU+")
MODELS = (*PAPER, *OURS)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What a model is shown and how it is trained: the graph, the view of the readings, fresh windows or not.

    With `regression` it forecasts what the regression per sensor misses, or its blend with days alike. Fresh windows
    have so many `queries`, and a share `outages` of their sensors goes out.
    """

    graph: str
    mean_day: bool
    regression: bool
    fresh: bool
    queries: int
    outages: float
    train: TrainConfig


def recipe(name: str, config: "TrafficConfig", keep: float, windows: int) -> Recipe:
    """The recipe of a model at a share kept, with so many training windows: the paper's for its own, ours for others.

    The paper trains for 40 epochs by Adam with rate 1e-2 and cosine restarts, T_0 = 10.
    """
    batch = min(config.batch_size, windows)
    a_pass = windows // batch
    if name in PAPER:
        restart = max(1, config.paper_epochs // 4)
        training = TrainConfig(
            epochs=config.paper_epochs, batch_size=batch, rate=1e-2, schedule="cosine_restarts", restart_epochs=restart,
            log_every=_every(config.paper_epochs * a_pass, config.looks), clip=None,
        )  # fmt: skip
        return Recipe("percentile", False, False, fresh=False, queries=1, outages=0.0, train=training)
    training = TrainConfig(
        steps=config.steps, batch_size=batch, rate=config.rate, schedule="one_cycle", clip=1.0,
        log_every=_every(config.steps, config.looks),
    )  # fmt: skip
    # Where all snapshots are kept there is only one time to ask for.
    queries = 1 if keep == 1 else config.queries
    return Recipe("gaussian", config.mean_day, config.regression, True, queries, config.outages, training)


def _every(steps: int, looks: int) -> int:
    return max(1, steps // looks)


def make_model(
    name: str, config: "TrafficConfig", *, nodes: int, period: int, inputs: int, key: PRNGKeyArray
) -> HybridGDE:
    """A new model; `model(stream, query_times)` forecasts."""
    return _MAKERS[name](config, nodes, float(period), inputs, key)


def _paper_gru(config: "TrafficConfig", nodes: int, period: float, inputs: int, key: PRNGKeyArray) -> HybridGDE:
    return gru(nodes, 1, 50, key=key, inputs=inputs, period=period)


def _paper_gcgru(config: "TrafficConfig", nodes: int, period: float, inputs: int, key: PRNGKeyArray) -> HybridGDE:
    return gcgru(1, 46, key=key, inputs=inputs, period=period)


def _paper_gcde_gru(config: "TrafficConfig", nodes: int, period: float, inputs: int, key: PRNGKeyArray) -> HybridGDE:
    return gcde_gru(1, 46, key=key, inputs=inputs, period=period)


def _ours(config: "TrafficConfig", nodes: int, period: float, inputs: int) -> dict[str, Any]:
    """The options of our models, the same with the flow and without."""
    return dict(
        inputs=inputs, operator=config.operator, residual=not config.regression, period=period,
        time_scale=config.time_scale, num_nodes=nodes, rank=config.rank, embedding=config.embedding,
    )  # fmt: skip


def _our_gcgru(config: "TrafficConfig", nodes: int, period: float, inputs: int, key: PRNGKeyArray) -> HybridGDE:
    network = gcgru(1, config.hidden, key=key, **_ours(config, nodes, period, inputs))
    return start_small(network) if config.regression else network


def _our_gcde_gru(config: "TrafficConfig", nodes: int, period: float, inputs: int, key: PRNGKeyArray) -> HybridGDE:
    solve = HybridConfig(num_steps=config.flow_steps)
    network = gcde_gru(1, config.hidden, key=key, config=solve, **_ours(config, nodes, period, inputs))
    return start_small(network) if config.regression else network


_MAKERS: dict[str, Callable[["TrafficConfig", int, float, int, PRNGKeyArray], HybridGDE]] = {
    "GRU": _paper_gru,
    "GCGRU": _paper_gcgru,
    "GCDE-GRU": _paper_gcde_gru,
    "GCGRU+": _our_gcgru,
    "GCDE-GRU+": _our_gcde_gru,
}
