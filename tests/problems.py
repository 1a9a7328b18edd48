"""Problems with exact solutions, and the small graphs that tests share."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from neuralgde import field as fields
from neuralgde.graph import Graph


class Problem(NamedTuple):
    field: Callable
    z0: np.ndarray
    exact: Callable[[np.ndarray], np.ndarray]  # at times (T,): (T, *z0.shape)
    graph: Graph | None = None


def _forced(t, z, graph):
    return -z + jnp.sin(3 * t)


def _forced_exact(t):
    return (1.3 * np.exp(-t) + (np.sin(3 * t) - 3 * np.cos(3 * t)) / 10)[:, None]


def forced() -> Problem:
    """A relaxation driven by a sine: it depends on time, so it tells a wrong stage time."""
    return Problem(_forced, np.array([1.0]), _forced_exact)


def _rotate(t, z, graph):
    return jnp.stack([z[1], -z[0]])


def rotation() -> Problem:
    return Problem(_rotate, np.array([1.0, 0.0]), lambda t: np.stack([np.cos(t), -np.sin(t)], axis=1))


def _logistic(t, z, graph):
    return z * (1 - z)


def logistic() -> Problem:
    """Not linear."""
    return Problem(_logistic, np.array([0.1]), lambda t: 1 / (1 + 9 * np.exp(-t))[:, None])


def _heat(t, z, graph):
    return -(graph.operator("laplacian") @ z)


def heat() -> Problem:
    """Diffusion over a directed graph, by the matrix exponential."""
    graph = small_graph()
    z0 = np.random.default_rng(3).standard_normal((graph.num_nodes, 2))
    laplacian = np.asarray(graph.operator("laplacian").to_dense(), float)
    return Problem(_heat, z0, lambda t: np.stack([scipy.linalg.expm(-laplacian * s) @ z0 for s in t]), graph)


PROBLEMS = {"forced": forced, "rotation": rotation, "logistic": logistic, "heat": heat}


def small_graph(seed: int = 0, num_nodes: int = 6, layout: str | None = None) -> Graph:
    """A weighted directed graph with a self loop and an isolated node."""
    rng = np.random.default_rng(seed)
    a = (rng.random((num_nodes, num_nodes)) < 0.5) * rng.uniform(0.5, 1.5, (num_nodes, num_nodes))
    a[1, 1] = 0.7
    a[-1], a[:, -1] = 0, 0
    return Graph.from_adjacency(a, layout=layout)


def _varying(basis: str) -> Callable:
    return lambda key: fields.DepthVarying(fields.GCDE((4, 5, 4), key=key), basis, 3, scale=0.3, key=key)


# One of each vector field, from 4 features to as many. Attention has one layer: kinks of a first one reach what the
# second gives, and where a path crosses many of them two solvers differ by more than two adjoints do.
FIELDS = {
    "gcde": lambda key: fields.GCDE((4, 5, 4), key=key),
    "gade": lambda key: fields.GADE((4, 4), heads=2, final_activation=jnp.tanh, key=key),
    "gmde": lambda key: fields.GMDE((4, 5, 4), key=key),
    "second_order": lambda key: fields.SecondOrder(fields.GCDE((4, 5, 2), key=key)),
    "piecewise_linear": _varying("piecewise_linear"),
    "with_time": lambda key: fields.WithTime(fields.GCDE((5, 5, 4), key=key)),
    "fourier": _varying("fourier"),
    "chebyshev": _varying("chebyshev"),
    "piecewise": _varying("piecewise"),
    "hamiltonian": lambda key: fields.HamiltonianField(fields.GMDE((4, 5, 1), key=key)),
}


def make_field(name: str) -> Callable:
    """One of FIELDS; its parameters follow the default precision."""
    return FIELDS[name](jax.random.key(7))
