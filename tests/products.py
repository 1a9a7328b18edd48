"""What sparse products are held against: the dense one, and a scalar made of two products."""

import jax.numpy as jnp


def dense(w, z, s):
    """Weights w times states z by a full matrix of the structure s."""
    p = s.adjacency
    return jnp.zeros(p.shape, w.dtype).at[p.rows, p.indices].add(w[s.by_receiver]) @ z


def nonlinear(product):
    """A scalar with no vanishing derivatives, through two products as in a network of two layers."""

    def f(w, z, s):
        h = jnp.sin(product(w, z, s))
        return jnp.sum(jnp.cos(product(w**2, h, s)) * h)

    return f
