"""The chemical Langevin equation with learned rates: what a firing changes, what is silenced, what is attended to."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neuralgde import Graph, InputError
from neuralgde.field import ReactionDiffusion, ReactionDrift, ReactionRates
from neuralgde.simulate import MassAction, Reaction, ReactionNetwork

LOW, SPAN = (0.0, 2.0, 0.0), (50.0, 10.0, 20.0)


def network():
    """2 A -> B, B -> A + C with C as a catalyst, and C from nothing."""
    return ReactionNetwork(
        {"A": 10, "B": 2, "C": 1},
        [
            Reaction("pair", {"A": 2}, {"B": 1}, MassAction("k")),
            Reaction("split", {"B": 1}, {"A": 1, "C": 1}, "k * B * C"),
            Reaction("birth", {}, {"C": 1}, "k"),
        ],
        parameters={"k": 0.1},
    )


def rates():
    return ReactionRates(network().graph(signed=True), LOW, SPAN, time_scale=5.0, key=jax.random.key(0))


def state(a, b, c, own=0.0):
    counts = (jnp.array([a, b, c]) - jnp.array(LOW)) / jnp.array(SPAN)
    return jnp.concatenate([counts, jnp.full(3, own)])[:, None]


def test_drift_and_diffusion_are_what_firings_change():
    graph, z = network().graph(signed=True), state(20.0, 5.0, 3.0)
    a, change = rates()(z, graph)
    np.testing.assert_array_equal(change, network().stoichiometry.T)
    assert (a > 0).all()
    drift, diffusion = ReactionDrift(rates(), 5.0), ReactionDiffusion(rates(), 5.0)
    np.testing.assert_allclose(drift(0.0, z, graph)[:3, 0], change @ a / jnp.array(SPAN), rtol=1e-5)
    np.testing.assert_allclose(diffusion(0.0, z, graph)[:3, 0], jnp.sqrt(change**2 @ a) / jnp.array(SPAN), rtol=1e-3)
    # The reactions' own states: N(0, 1) in the long run, as drift and noise balance there.
    own = drift(0.0, state(20.0, 5.0, 3.0, 2.0), graph)[3:, 0]
    np.testing.assert_allclose(own, -2.0 / 5, rtol=1e-5)
    np.testing.assert_allclose(diffusion(0.0, z, graph)[3:, 0] ** 2, 2.0 / 5, rtol=1e-5)


def test_nothing_fires_without_its_reactants():
    a, _ = rates()(state(0.0, 5.0, 3.0), network().graph(signed=True))
    assert a[0] == 0
    assert (a[1:] > 0).all()


def test_own_states_change_rates():
    graph = network().graph(signed=True)
    calm, high = (rates()(state(20.0, 5.0, 3.0, own), graph)[0] for own in (0.0, 1.0))
    np.testing.assert_allclose(high / calm, np.exp(0.05), rtol=1e-4)


@pytest.mark.parametrize(("silenced", "still"), [("birth", 2), ("B", 1)])
def test_silenced_nodes(silenced, still):
    net = network()
    mask = np.array([name != silenced for name in net.node_names])
    graph = net.graph(signed=True).with_node_mask(mask)
    z = state(20.0, 5.0, 3.0)
    a, _ = rates()(z, graph)
    assert a[still] == 0
    place = net.node_names.index(silenced)
    for field in (ReactionDrift(rates()), ReactionDiffusion(rates())):
        assert field(0.0, z, graph)[place] == 0
    # A species that is silenced is a count of none, whatever its state says.
    if silenced == "B":
        np.testing.assert_allclose(a, rates()(state(20.0, 0.0, 3.0), net.graph(signed=True))[0], rtol=1e-5)


def test_attention_adds_up_to_one_at_every_node():
    graph = network().graph(signed=True)
    (weights,) = ReactionDrift(rates()).attention(0.0, state(20.0, 5.0, 3.0), graph)
    ends = np.concatenate([graph.receivers, np.arange(6)])
    assert weights.shape == (graph.num_edges + 6, 1)
    np.testing.assert_allclose(np.bincount(ends, weights[:, 0]), 1, rtol=1e-5)


def test_refuses():
    graph = network().graph(signed=True)
    with pytest.raises(InputError, match="expected the roles of species"):
        ReactionRates(Graph.from_edges([0, 1], [1, 0]), (0.0,), (1.0,), key=jax.random.key(0))
    with pytest.raises(InputError, match="span: expected positive"):
        ReactionRates(graph, LOW, (1.0, 0.0, 1.0), key=jax.random.key(0))
    with pytest.raises(InputError, match="one number for each species"):
        ReactionRates(graph, LOW, SPAN[:2], key=jax.random.key(0))
    with pytest.raises(InputError, match=r"z: expected shape \(6, 1\)"):
        rates()(jnp.zeros((5, 1)), graph)
