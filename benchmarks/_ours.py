"""Our side of the comparisons."""

import equinox as eqx
import jax
import jax.numpy as jnp

import neuralgde as gde

from ._problems import Layers


def gcde(given: Layers) -> gde.GCDE:
    """A GCDE that holds the weights given; with an axis of seeds in front, one to be vmapped over."""
    widths = (given.weights[0].shape[-2], *(w.shape[-1] for w in given.weights))
    field = gde.GCDE(widths, key=jax.random.key(0))
    new = [jnp.asarray(x) for pair in zip(given.weights, given.biases, strict=True) for x in pair]
    return eqx.tree_at(lambda f: [x for layer in f.layers for x in (layer.weight, layer.bias)], field, new)


def in_order(grads) -> list:
    """The gradients of a GCDE, layer by layer: weight, bias."""
    return [x for layer in grads.layers for x in (layer.weight, layer.bias)]
