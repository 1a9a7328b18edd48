"""Particles in the plane, bound to the origin, that meet as springs with drag (the paper's multi-agent system)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .._errors import InputError, unknown_name
from .._types import Time
from ..graph import Graph
from ..integrate import solve

SIGNS = ("dissipative", "paper")


class ParticleSystem(eqx.Module):
    """x_i'' = -x_i + sum over j in N_i of f_ij, N_i the others within r/2 of i, with

    f_ij = -[alpha (d - r) + beta <v_i - v_j, n_ij>] n_ij,  d = |x_i - x_j|,  n_ij = (x_i - x_j) / d.

    A pair that meets is pushed apart by a spring and slowed by drag, so energy falls. With sign="paper" the sum is
    subtracted, as the appendix prints it: particles then attract each other and gain energy.
    """

    alpha: float = 1.0
    beta: float = 1.0
    radius: float = 1.0
    sign: str = eqx.field(default="dissipative", static=True)

    def __check_init__(self):
        for name in ("alpha", "beta", "radius"):
            value = getattr(self, name)
            # Without drag energy stays as it is; without the others there is no force.
            least = "no number below 0" if name == "beta" else "a positive number"
            if not (isinstance(value, Array | np.ndarray) or value > 0 or (name == "beta" and value == 0)):
                raise InputError(f"{name}: expected {least}, got {value}.")
        if self.sign not in SIGNS:
            raise InputError(unknown_name("sign", self.sign, SIGNS))

    def __call__(self, t: Time, z: Float[Array, "particles 4"], graph: Graph | None = None) -> Array:
        """The field of motion, z = (x, v) side by side. It finds the neighbours itself."""
        del t, graph
        x, v = z[:, :2], z[:, 2:]
        distance, normal, near = self._pairs(x)
        speed = jnp.sum((v[:, None] - v[None]) * normal, axis=-1)
        push = -(self.alpha * (distance - self.radius) + self.beta * speed)
        force = jnp.sum(jnp.where(near[..., None], push[..., None] * normal, 0), axis=1)
        return jnp.concatenate([v, -x + (force if self.sign == "dissipative" else -force)], axis=1)

    def energy(self, z: Float[Array, "*batch particles 4"]) -> Float[Array, "*batch"]:
        """Kinetic and harmonic energy, and that of the springs of pairs that touch; it never rises unless drag does."""
        if z.ndim > 2:
            return jax.vmap(self.energy)(z)
        x, v = z[:, :2], z[:, 2:]
        distance, _, near = self._pairs(x)
        # Each pair comes twice. The constant makes the energy of a pair zero where it parts.
        spring = self.alpha * (distance - self.radius) ** 2 - self.alpha * self.radius**2 / 4
        return (jnp.sum(v**2) + jnp.sum(x**2)) / 2 + jnp.sum(jnp.where(near, spring, 0)) / 4

    def adjacency(self, z: Float[Array, "*batch particles 4"]) -> Bool[Array, "*batch particles particles"]:
        """A_t: which particles are within reach of each other."""
        if z.ndim > 2:
            return jax.vmap(self.adjacency)(z)
        return self._pairs(z[:, :2])[2]

    def graph(self, z: Float[Array, "particles 4"]) -> Graph:
        """The graph of a state; works under `jit`."""
        return Graph.from_positions(z[:, :2], self.radius)

    def _pairs(self, x):
        offset = x[:, None] - x[None]
        squared = jnp.sum(offset**2, axis=-1)
        near = (4 * squared <= self.radius**2) & ~jnp.eye(x.shape[0], dtype=bool)
        # A particle has no distance from itself, and its root no gradient: pairs that do not count get a stand-in.
        distance = jnp.sqrt(jnp.where(near & (squared > 0), squared, 1))
        return distance, offset / distance[..., None], near


class ParticleRun(eqx.Module):
    """Trajectories: times (times,), states (runs, times, particles, 4) with positions before velocities."""

    times: Float[Array, " times"]
    states: Float[Array, "runs times particles 4"]
    system: ParticleSystem


def simulate_particles(
    system: ParticleSystem | None = None,
    *,
    runs: int = 1,
    particles: int = 10,
    duration: float = 5.0,
    dt: float = 1.95e-3,
    key: PRNGKeyArray,
) -> ParticleRun:
    """Runs from positions and velocities drawn from N(0, 1), by rk4 with the fixed step dt, every step kept."""
    system = ParticleSystem() if system is None else system
    for name, value in (("runs", runs), ("particles", particles)):
        if value < 1:
            raise InputError(f"{name}: expected 1 or more, got {value}.")
    if not 0 < dt <= duration:
        raise InputError(f"dt: expected a step between 0 and the duration {duration}, got {dt}.")
    times = np.arange(round(duration / dt) + 1) * dt
    z0 = jax.random.normal(key, (runs, particles, 4))

    def one(z0):
        return solve(system, z0, times, solver="rk4", dt0=dt, adjoint="direct", throw=False).states

    return ParticleRun(jnp.asarray(times, z0.dtype), jax.jit(jax.vmap(one))(z0), system)
