"""A loss and its gradient in one compiled program, which tests of adjoints share."""

import equinox as eqx
import jax
import jax.flatten_util


def program(loss, trained, data, **options):
    """`loss(trained, data)` and its gradient as a function of all that is trained, in one vector; and that vector."""
    params, static = eqx.partition(trained, eqx.is_inexact_array)
    flat, unravel = jax.flatten_util.ravel_pytree(params)

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def run(flat, data):
        return loss(eqx.combine(unravel(flat), static), data, **options)

    return lambda flat: run(flat, data), flat


def gradient(loss, trained, data, **options):
    run, flat = program(loss, trained, data, **options)
    return run(flat)[1]
