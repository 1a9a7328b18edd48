"""Whether noise is componentwise: g_i depends on z_i alone, so that Milstein's correction is right."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from ..graph import Graph

# What acts on each number by itself, whatever its other operands are.
_ELEMENTWISE = frozenset(
    (
        "abs", "acos", "acosh", "add", "add_any", "and", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil",
        "clamp", "convert_element_type", "copy", "cos", "cosh", "digamma", "div", "eq", "erf", "erf_inv", "erfc", "exp",
        "exp2", "expm1", "floor", "ge", "gt", "integer_pow", "is_finite", "le", "lgamma", "log", "log1p", "logistic",
        "lt", "max", "min", "mul", "ne", "neg", "not", "or", "pow", "rem", "round", "rsqrt", "select_n", "sign", "sin",
        "sinh", "sqrt", "square", "stop_gradient", "sub", "tan", "tanh", "xor",
    )
)  # fmt: skip


# From where a solve starts to where its derivative is looked at: noise may be coupled in some places alone.
_DISTANCES = (0.1, 1.0, 1.0, 10.0, 10.0)


def is_componentwise(diffusion: Callable[..., Array], t: Array, z: Array, graph: Graph | None) -> bool:
    """Whether it is, by its operations, or, where all values are known, by its derivative at points near and far."""
    dynamic, static = eqx.partition((diffusion, graph), eqx.is_array)

    def g(z, dynamic, t):
        diffusion, graph = eqx.combine(dynamic, static)
        return diffusion(t, z, graph)

    closed = jax.make_jaxpr(g)(z, dynamic, t)
    if _acts_elementwise(closed.jaxpr, [True] + [False] * (len(closed.jaxpr.invars) - 1), z.shape) is not None:
        return True
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((z, dynamic, t, closed.consts))):
        return False
    return _derivative_is_diagonal(lambda z: g(z, dynamic, t), z)


def _acts_elementwise(jaxpr: Any, marked: list[bool], shape: tuple[int, ...]) -> list[bool] | None:
    """Which results depend on the marked inputs, or None where some step might mix their elements."""
    depends = {var: mark for var, mark in zip(jaxpr.invars, marked, strict=True)}

    def is_marked(atom: Any) -> bool:
        return not hasattr(atom, "val") and depends.get(atom, False)

    for eqn in jaxpr.eqns:
        marks = [is_marked(atom) for atom in eqn.invars]
        if not any(marks):
            continue
        inner = next((eqn.params[name] for name in ("jaxpr", "call_jaxpr", "fun_jaxpr") if name in eqn.params), None)
        if inner is not None and eqn.primitive.name not in ("scan", "while", "cond"):
            results = _acts_elementwise(getattr(inner, "jaxpr", inner), marks, shape)
            if results is None:
                return None
        elif eqn.primitive.name in _ELEMENTWISE and all(var.aval.shape == shape for var in eqn.outvars):
            results = [True] * len(eqn.outvars)
        else:
            return None
        depends.update(zip(eqn.outvars, results, strict=True))
    return [is_marked(atom) for atom in jaxpr.outvars]


def _derivative_is_diagonal(g: Callable[[Array], Array], z: Array) -> bool:
    """r_i (J r)_i is J_ii for every vector r of signs where J is diagonal, and changes with r where it is not."""
    rng = np.random.default_rng(0)
    for distance in _DISTANCES:
        here = z + jnp.asarray(rng.normal(0, distance, z.shape), z.dtype)
        seen = []
        for _ in range(3):
            signs = jnp.asarray(rng.choice([-1.0, 1.0], z.shape), z.dtype)
            seen.append(np.asarray(signs * jax.jvp(g, (here,), (signs,))[1]))
        scale = max(float(np.abs(s).max()) for s in seen)
        if np.isfinite(scale) and not all(np.allclose(s, seen[0], rtol=0, atol=1e-5 * scale) for s in seen):
            return False
        if distance == _DISTANCES[0] and not np.isfinite(scale):
            return False
    return True
