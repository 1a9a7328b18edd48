"""What a trained latent model of the repressilator makes of its window and of its noise."""

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from ..graph import GraphStream
from ..model import collapse_report
from ._repressilator_models import OURS, paper_stream
from ._repressilator_task import RepressilatorTask, purpose_key

if TYPE_CHECKING:
    from .repressilator import RepressilatorConfig


def guard(name: str, model: Any, task: RepressilatorTask, config: "RepressilatorConfig") -> dict[str, Any]:
    """The collapse report of one seed's model on the windows of validation, as plain numbers."""
    past = task.past(task.validation)
    if name == OURS:
        model = model()
        context = jnp.asarray(past[:, -config.ours.context :])
        stream = _on_signed(context, task)
        times = tuple(config.ahead[::10].tolist())
    else:
        stream = paper_stream(jnp.asarray(past[:, :: config.every]), task.graph, config.back)
        times = tuple((config.ahead[::10] / config.time_unit).tolist())
    report = collapse_report(model, stream, np.array([0.0, *times]), key=purpose_key(config.seed, "samples"), samples=8)
    species = len(task.span)
    return {
        "kl_observed": float(report.kl[:species].mean()), "kl_latent": float(report.kl[species:].mean()),
        "active_share": report.active_share, "diffusion": report.diffusion, "noise_share": report.noise_share,
        "message": report.message,
    }  # fmt: skip


def _on_signed(context, task: RepressilatorTask) -> GraphStream:
    back = tuple(np.arange(1.0 - context.shape[1], 1.0).tolist())
    return paper_stream(context, task.network.graph(signed=True), back)
