"""The protocol of the multi-agent experiment: training on single steps, testing by extrapolation."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from .. import metrics
from ..graph import Graph


class OneStep(eqx.Module):
    """The next state of the particles, by a model, on the graph of given positions."""

    radius: float = eqx.field(static=True)
    dt: float = eqx.field(static=True)

    def __call__(
        self, model: Any, z: Float[Array, "particles 4"], z_graph: Float[Array, "particles 4"]
    ) -> Float[Array, "particles 4"]:
        graph = Graph.from_positions(z_graph[:, :2], self.radius)
        # Times that are not traced: the solver then knows its steps in advance.
        with jax.ensure_compile_time_eval():
            times = jnp.array([0.0, self.dt])
        return model(z, times.astype(z.dtype), graph)[-1]

    def loss(
        self, model: Any, z: Float[Array, "batch particles 4"], z_next: Float[Array, "batch particles 4"]
    ) -> Array:
        """The MSE of one step, over dt^2.

        The states of one step differ by some dt, so the MSE itself is of order dt^2 and its gradients sink under the
        epsilon of Adam. A constant factor changes nothing else for Adam, and this one makes it an MSE of derivatives.
        """
        predicted = jax.vmap(lambda z: self(model, z, z))(z)
        return jnp.mean(((predicted - z_next) / self.dt) ** 2)

    def extrapolate(
        self,
        model: Any,
        states: Float[Array, "times particles 4"],
        lengths: Int[Array, " lengths"],
        nominal_graph: Bool[Array, ""],
    ) -> Float[Array, "lengths steps particles 4"]:
        """Predictions of all states but the first, for each length k: after every k steps the nominal state is fed.

        A length that is not shorter than the trajectory is a rollout from its first state. All lengths go along
        together, so a model needs one program for all of them. The graph is that of the state predicted, or with
        `nominal_graph` that of the nominal one.
        """

        def advance(z, now):
            n, nominal = now
            z = jnp.where((n % lengths == 0)[:, None, None], nominal, z)
            z = jax.vmap(lambda z: self(model, z, jnp.where(nominal_graph, nominal, z)))(z)
            return z, z

        start = jnp.broadcast_to(states[0], (lengths.shape[0], *states.shape[1:]))
        _, predicted = jax.lax.scan(advance, start, (jnp.arange(states.shape[0] - 1), states[:-1]))
        return jnp.swapaxes(predicted, 0, 1)


class Trial(eqx.Module):
    """A model, and the trajectory that it learns from where each seed has its own."""

    model: Any
    states: Float[Array, "*seeds times particles 4"] | None = None


class TrialLoss(eqx.Module):
    """The loss of a trial on a batch: the numbers of steps in its own trajectory, or states and those after them."""

    step: OneStep

    def __call__(self, trial: Trial, batch: Any, key: PRNGKeyArray) -> Float[Array, ""]:
        del key
        z, z_next = batch if trial.states is None else (trial.states[batch], trial.states[batch + 1])
        return self.step.loss(trial.model, z, z_next)


def score(
    predicted: Float[np.ndarray, "runs steps particles 4"], states: Float[np.ndarray, "runs times particles 4"]
) -> dict[str, float]:
    """The metrics of predictions of all states but the first, over all runs at once."""
    y = states[:, 1:].reshape(-1, *states.shape[-2:])
    forecast = predicted.reshape(y.shape)
    return {name: float(metric(forecast, y)) for name, metric in _METRICS.items()}


_METRICS = {
    "mape": metrics.mape,
    "median_relative_error": metrics.median_relative_error,
    "nrmse": metrics.nrmse,
}
