"""Fields on tiny graphs against their formulas, written out in numpy; and the errors of wrong sizes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from layers import call
from neuralgde import InputError
from neuralgde.field import GADE, GCDE, GMDE, HamiltonianField, LearnedAugment, SecondOrder, WithTime, ZeroAugment
from neuralgde.graph import Graph
from neuralgde.nn import MessagePassing


@pytest.fixture
def path():
    """0 -> 1 -> 2, and 0 -> 2."""
    return Graph.from_edges(np.array([0, 1, 0]), np.array([1, 2, 2]), num_nodes=3)


def array(x):
    return np.asarray(x, np.float64)


def state(key, features):
    return jax.random.normal(key, (3, features))


def test_gcde_is_layers_with_an_activation_between(path, getkey):
    field, z = GCDE((2, 3, 2), key=getkey(), activation=jnp.sin), state(getkey(), 2)
    first, last = field.layers
    field = eqx.tree_at(lambda f: f.layers[0].bias, field, jnp.array([0.1, 0.2, 0.3]))
    # In-degrees with the self loop are 1, 2, 3.
    a = np.array([[1, 0, 0], [1, 1, 0], [1, 1, 1]])
    scale = np.array([1, 2, 3]) ** -0.5
    operator = scale[:, None] * a * scale
    hidden = np.sin(operator @ array(z) @ array(first.weight) + np.array([0.1, 0.2, 0.3]))
    np.testing.assert_allclose(call(field, 0.0, z, path), operator @ hidden @ array(last.weight), atol=1e-6)


def test_gcde_with_another_operator(path, getkey):
    field, z = GCDE((2, 2), key=getkey(), operator="laplacian"), state(getkey(), 2)
    laplacian = np.array([[0, 0, 0], [-1, 1, 0], [-1, -1, 2]])
    np.testing.assert_allclose(
        call(field, 0.0, z, path), laplacian @ array(z) @ array(field.layers[0].weight), atol=1e-6
    )


def attention_layer(layer, z):
    """A layer of attention on 0 -> 1 -> 2, 0 -> 2 with self loops: its output, its weights [head][receiver, sender]."""
    neighbours = np.array([[1, 0, 0], [1, 1, 0], [1, 1, 1]], bool)
    out, weights = [], []
    for head in range(layer.weight.shape[1]):
        h = z @ array(layer.weight)[:, head]
        logits = (h @ array(layer.att_target)[head])[:, None] + (h @ array(layer.att_source)[head])[None]
        logits = np.where(logits > 0, logits, 0.2 * logits)
        e = np.where(neighbours, np.exp(logits), 0)
        weights.append(e / e.sum(1, keepdims=True))
        out.append(weights[-1] @ h)
    return np.concatenate(out, axis=1) + array(layer.bias), weights


@pytest.mark.parametrize(("final", "expected"), [(None, lambda x: x), (jnp.tanh, np.tanh)])
def test_gade_is_attention_with_heads_side_by_side(path, getkey, final, expected):
    field = GADE((2, 3, 2), heads=2, key=getkey(), final_activation=final)
    assert [layer.weight.shape for layer in field.layers] == [(2, 2, 3), (6, 1, 2)]
    z = state(getkey(), 2)
    hidden, first = attention_layer(field.layers[0], array(z))
    out, last = attention_layer(field.layers[1], np.tanh(hidden))
    np.testing.assert_allclose(call(field, 0.0, z, path), expected(out), atol=1e-5)

    receivers, senders = [1, 2, 2, 0, 1, 2], [0, 1, 0, 0, 1, 2]
    for ours, theirs in zip(call(field.attention, 0.0, z, path), (first, last), strict=True):
        np.testing.assert_allclose(ours, np.stack([w[receivers, senders] for w in theirs], axis=1), atol=1e-5)


@pytest.mark.parametrize("self_term", [True, False])
@pytest.mark.parametrize("layout", ["dense", "csr", "pairs"])
def test_gmde_is_message_passing(path, getkey, self_term, layout):
    """Products over nodes give what a message network called on every edge does."""

    def biases(f):
        return f.message_bias, f.update_bias, f.out_bias

    f, z = GMDE((2, 5, 3), self_term=self_term, key=getkey()), state(getkey(), 2)
    # Biases start at zero, where they would not show.
    f = eqx.tree_at(biases, f, jax.tree.map(lambda b: jax.random.normal(getkey(), b.shape), biases(f)))
    message_weight = jnp.concatenate([f.message_target, f.message_source])
    own = jnp.zeros((2, 5)) if f.update_self is None else f.update_self
    update_weight = jnp.concatenate([own, f.update_sum])

    def message(z_v, z_u):
        return jnp.tanh(jnp.concatenate([z_v, z_u]) @ message_weight + f.message_bias)

    def update(z_v, m_v):
        return jnp.tanh(jnp.concatenate([z_v, m_v]) @ update_weight + f.update_bias) @ f.out_weight + f.out_bias

    expected = call(MessagePassing(message, update), z, path)
    np.testing.assert_allclose(call(f, 0.0, z, path.with_layout(layout)), expected, atol=1e-6)


def test_gmde_without_the_self_term_does_not_see_a_node_that_nothing_points_to(path, getkey):
    f, z = GMDE((2, 5, 2), self_term=False, key=getkey()), state(getkey(), 2)
    np.testing.assert_allclose(call(f, 0.0, z, path)[0], call(f, 0.0, 2 * z, path)[0], atol=1e-6)
    assert np.abs(call(f, 0.0, z, path)[2] - call(f, 0.0, 2 * z, path)[2]).max() > 1e-3


def test_second_order_has_positions_first(path, getkey):
    z = state(getkey(), 4)

    def spring(t, z, graph):
        return -3.0 * z[:, :2] - t * z[:, 2:]

    dz = SecondOrder(spring)(0.5, z, path)
    np.testing.assert_allclose(dz[:, :2], z[:, 2:])
    np.testing.assert_allclose(dz[:, 2:], -3.0 * z[:, :2] - 0.5 * z[:, 2:], atol=1e-6)


def test_second_order_takes_both_halves(path, getkey):
    inner, z = GCDE((4, 3, 2), key=getkey()), state(getkey(), 4)
    np.testing.assert_allclose(call(SecondOrder(inner), 0.0, z, path)[:, 2:], call(inner, 0.0, z, path), atol=1e-6)


@pytest.mark.parametrize("t", [0.5, jnp.float32(0.25)], ids=["float", "array"])
def test_time_is_the_last_feature(path, getkey, t):
    z = state(getkey(), 2)
    seen = WithTime(lambda t, z, graph: z)(t, z, path)
    np.testing.assert_allclose(seen, np.concatenate([z, np.full((3, 1), float(t))], axis=1))
    assert seen.dtype == z.dtype


def test_augmentation_keeps_the_data_first(path, getkey):
    x = state(getkey(), 2)
    zeros = ZeroAugment(3)(x, path)
    np.testing.assert_array_equal(zeros, np.concatenate([x, np.zeros((3, 3))], axis=1))
    assert zeros.dtype == x.dtype

    learned = LearnedAugment(2, 3, key=getkey())
    learned = eqx.tree_at(lambda m: m.bias, learned, jnp.array([1.0, 2.0, 3.0]))
    added = array(x) @ array(learned.weight) + [1, 2, 3]
    np.testing.assert_allclose(learned(x, path), np.concatenate([x, added], axis=1), atol=1e-6)

    over_graph = LearnedAugment(2, 3, operator="adjacency", key=getkey())
    sums = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0]]) @ array(x)
    np.testing.assert_allclose(over_graph(x, path)[:, 2:], sums @ array(over_graph.weight), atol=1e-6)


def test_a_hamiltonian_field_turns_the_gradient(path, getkey):
    """Springs along the edges: H = sum of p^2 / 2 + sum over edges u -> v of (q_v - q_u)^2 / 2."""

    def energy(t, z, graph):
        q, p = z[:, :1], z[:, 1:]
        stretch = graph.at_receivers(q) - graph.at_senders(q)
        return p**2 / 2 + graph.sum_to_receivers(stretch**2 / 2)

    z = state(getkey(), 2)
    q = array(z)[:, 0]
    force = -np.array([2 * q[0] - q[1] - q[2], 2 * q[1] - q[0] - q[2], 2 * q[2] - q[0] - q[1]])
    dz = call(HamiltonianField(energy), 0.0, z, path)
    np.testing.assert_allclose(dz, np.stack([z[:, 1], force], axis=1), atol=1e-6)


@pytest.mark.parametrize("inner", [lambda key: GMDE((4, 8, 1), key=key), lambda key: GCDE((4, 8, 3), key=key)])
def test_energy_stands_still_along_a_hamiltonian_field(path, getkey, inner, x64):
    field, z = HamiltonianField(inner(getkey())), state(getkey(), 4)

    @eqx.filter_jit
    def slope(field, along):
        return jax.jvp(lambda z: field.hamiltonian(0.0, z, path), (z,), (along,))[1]

    assert abs(slope(field, call(field, 0.0, z, path))) < 1e-12
    assert abs(slope(field, jnp.ones_like(z))) > 1e-3


def test_absent_nodes_have_no_energy(path, getkey):
    field, z = HamiltonianField(GMDE((4, 8, 1), key=getkey())), state(getkey(), 4)
    partly = path.with_node_mask(jnp.array([True, True, False]))
    moved = z.at[2].add(5.0)
    np.testing.assert_allclose(
        call(field.hamiltonian, 0.0, moved, partly), call(field.hamiltonian, 0.0, z, partly), atol=1e-6
    )
    np.testing.assert_array_equal(call(field, 0.0, z, partly)[2], np.zeros(4))


KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: GCDE((4,), key=KEY), r"widths: GCDE expects two or more.*got \(4,\)"),
        (lambda: GCDE((4, 0, 4), key=KEY), r"got \(4, 0, 4\)"),
        (lambda: GADE((4,), key=KEY), "widths: GADE"),
        (lambda: GADE((4, 4), heads=0, key=KEY), "heads: expected 1 or more, got 0"),
        (lambda: GMDE((4, 8, -1), key=KEY), "widths: GMDE expects 3 positive"),
        (lambda: ZeroAugment(-1), "extra: .* got -1"),
        (lambda: LearnedAugment(2, 0, key=KEY), "extra: .* got 2 and 0"),
    ],
)
def test_sizes_that_cannot_be_are_refused(make, says):
    with pytest.raises(InputError, match=says):
        make()


@pytest.mark.parametrize(
    ("field", "features", "says"),
    [
        (GCDE((4, 4), key=KEY), 3, r"GCDE expects shape \(3, 4\).*got \(3, 3\)"),
        (GADE((4, 4), key=KEY), 3, r"GADE expects shape \(3, 4\)"),
        (GMDE((4, 8, 4), key=KEY), 3, r"GMDE expects shape \(3, 4\)"),
        (SecondOrder(GCDE((3, 3), key=KEY)), 3, "even number of features, got 3"),
        (SecondOrder(GCDE((4, 4), key=KEY)), 4, r"maps 4 features to 2.*Set the last of its widths to 2"),
        (HamiltonianField(GCDE((3, 1), key=KEY)), 3, "positions q and momenta p.*got 3"),
    ],
)
def test_states_of_the_wrong_size_are_refused(path, field, features, says):
    with pytest.raises(InputError, match=says):
        field(0.0, jnp.ones((3, features)), path)


def test_a_state_for_another_graph_is_refused(path):
    with pytest.raises(InputError, match=r"a row per node.*got \(5, 2\)"):
        GCDE((2, 2), key=KEY)(0.0, jnp.ones((5, 2)), path)
