"""One clock for a batch: samples with times of their own are carried along by a common variable s."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class Clock(eqx.Module):
    """Maps s to each sample's time, linearly between outputs.

    Between two outputs s advances by the longest of the samples' intervals, so that s has the units of time and a step
    in s is, for no sample, a longer step in time. With t_b(s) the time of sample b, dz_b/ds = (dt_b/ds) f(t_b, z_b).
    """

    knots: Float[Array, " times"]
    times: Float[Array, "batch times"]

    def __call__(self, s: Float[Array, ""]) -> tuple[Float[Array, " batch"], Float[Array, " batch"]]:
        """Each sample's time at s and its rate dt_b/ds."""
        last = self.knots.shape[0] - 2
        # Steps never cross a knot, so the side on which a knot itself falls matters only at the two ends.
        j = jnp.clip(jnp.searchsorted(self.knots, s, side="right") - 1, 0, last) if last else 0
        length = self.knots[j + 1] - self.knots[j]
        rate = (self.times[:, j + 1] - self.times[:, j]) / jnp.where(length > 0, length, 1)
        return self.times[:, j] + (s - self.knots[j]) * rate, rate


def make_clock(times, xp=jnp):
    """The knots of s for times of shape (batch, times); works on the host with numpy and under `jit`."""
    longest = xp.max(xp.abs(xp.diff(times, axis=1)), axis=0)
    return xp.concatenate([xp.zeros(1, times.dtype), xp.cumsum(longest)])


def knots_of_breakpoints(breakpoints, times, knots, xp=jnp):
    """Where in s each sample meets each breakpoint in time; those never met are put behind the end."""
    forward = xp.where(times[:, -1:] >= times[:, :1], 1, -1).astype(times.dtype)
    found = [
        xp.interp(breakpoints * sign, row * sign, knots, left=knots[-1] + 1, right=knots[-1] + 1)
        for sign, row in zip(forward[:, 0], times, strict=True)
    ]
    return xp.concatenate(found)
