"""Cells and perceptrons without a graph, and the causal convolutions."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from layers import IN, NODES, call, close, in_numpy
from neuralgde import nn


def test_cells_without_a_graph():
    cell = nn.GRU(2, IN, key=jax.random.key(0))
    x, z = jnp.ones((NODES, 2)), jnp.asarray(np.arange(NODES * IN).reshape(NODES, IN) / 10, jnp.float32)
    close(call(cell, x, z), np.stack([call(cell.cell, a, b) for a, b in zip(x, z, strict=True)]), 1e-6)
    mlp = nn.NodeMLP(IN, 4, 5, 2, key=jax.random.key(0))
    close(call(mlp, z), np.stack([call(mlp.mlp, row) for row in z]), 1e-6)


@pytest.mark.parametrize(("kernel_size", "dilations"), [(3, (1, 2, 4)), (2, (1,)), (1, (1, 1)), (2, (3, 1))])
def test_tcn_sees_its_past_and_nothing_else(kernel_size, dilations):
    tcn = eqx.filter_jit(nn.TCN)(2, 8, 3, kernel_size, dilations, key=jax.random.key(0))
    times = 40
    x = np.asarray(jax.random.normal(jax.random.key(1), (times, 2)))
    out = np.asarray(call(tcn, jnp.asarray(x)))
    assert out.shape == (times, 3)
    # The series before the last row gives the same rows: nothing leaks from the future or from the length.
    close(call(tcn, jnp.asarray(x[:25])), out[:25], 1e-5)
    sees = np.any(np.asarray(jax.jit(jax.jacobian(lambda x: tcn(x)[30]))(x)) != 0, axis=(0, 2))
    reach = 2 * (kernel_size - 1) * sum(dilations)
    assert not np.any(sees[31:]) and not np.any(sees[: 30 - reach])
    assert sees[30] and sees[30 - reach]


def test_tcn_block_formula():
    """One block of kernel 2 and dilation 2, written as sums over the past."""
    tcn = eqx.filter_jit(nn.TCN)(2, 4, 3, 2, (2,), key=jax.random.key(0))
    x = np.asarray(jax.random.normal(jax.random.key(1), (7, 2)))
    got, tcn = in_numpy((call(tcn, jnp.asarray(x)), tcn))
    (block,) = tcn.blocks

    def convolve(conv, x):
        late = np.concatenate([np.zeros((2, x.shape[1])), x])[:-2]
        return late @ conv.weight[:, :, 0].T + x @ conv.weight[:, :, 1].T + conv.bias[:, 0]

    h = np.maximum(convolve(block.second, np.maximum(convolve(block.first, x), 0)), 0)
    h = np.maximum(h + x @ block.skip.weight[:, :, 0].T + block.skip.bias[:, 0], 0)
    close(got, h @ tcn.readout.weight.T + tcn.readout.bias, 1e-5)
