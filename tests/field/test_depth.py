"""Parameters that vary in t, and the residual network that they make."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neuralgde import InputError
from neuralgde.field import GADE, GCDE, DepthVarying, ResidualGNN, SecondOrder, WithTime, breakpoints_of
from neuralgde.graph import Graph

BASES = ["fourier", "chebyshev", "piecewise", "piecewise_linear"]


class Constant(eqx.Module):
    """dz/dt = theta."""

    theta: jax.Array

    def __call__(self, t, z, graph):
        return jnp.broadcast_to(self.theta, z.shape)


@pytest.fixture
def graph():
    return Graph.from_edges(np.array([0, 1, 2]), np.array([1, 2, 0]))


@eqx.filter_jit
def theta(basis, coefficients, times, interval):
    """theta(t) of a lone parameter with these coefficients, at each of the times."""
    field = DepthVarying(Constant(jnp.zeros((), coefficients.dtype)), basis, len(coefficients), interval)
    field = eqx.tree_at(lambda f: f.coefficients.theta, field, coefficients)
    return jax.vmap(lambda t: field.at(t).theta)(times)


def fourier(t, degree):
    """On [1, 3]: the period is 2."""
    return np.array([1, np.cos(np.pi * (t - 1)), np.sin(np.pi * (t - 1)), np.cos(2 * np.pi * (t - 1))])[:degree]


def chebyshev(t, degree):
    return np.cos(np.arange(degree) * np.arccos(np.clip(t - 2, -1, 1)))


def cells(t, degree):
    edges = np.linspace(1, 3, degree + 1)
    return np.eye(degree)[np.clip(np.searchsorted(edges, t, side="right") - 1, 0, degree - 1)]


def hats(t, degree):
    return np.array([np.interp(t, np.linspace(1, 3, degree), row) for row in np.eye(degree)])


@pytest.mark.parametrize("degree", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("basis", "exact"),
    [("fourier", fourier), ("chebyshev", chebyshev), ("piecewise", cells), ("piecewise_linear", hats)],
)
def test_bases_against_their_formulas(basis, exact, degree):
    coefficients = np.array([0.3, -1.0, 2.0, 0.7])[:degree]
    # Inside, at the ends, on a bound of the cells, and outside.
    times = np.array([1.0, 1.1, 1.5, 2.0, 2.3, 2.9, 3.0, 0.4, 3.3])
    expected = [coefficients @ exact(t, degree) for t in times]
    np.testing.assert_allclose(theta(basis, coefficients, times, (1.0, 3.0)), expected, atol=2e-6)


@pytest.mark.parametrize("degree", [1, 3, 6])
@pytest.mark.parametrize("basis", BASES)
def test_it_starts_as_the_given_field(graph, getkey, basis, degree):
    @eqx.filter_jit
    def found_and_expected(key, times, graph):
        inner = GADE((2, 3, 2), key=key)
        field = DepthVarying(inner, basis, degree, (-1.0, 2.0), key=key)
        assert all(c.shape[0] == degree for c in jax.tree.leaves(field.coefficients))
        z = jax.random.normal(key, (3, 2))
        return jax.vmap(lambda t: field(t, z, graph))(times), inner(0.0, z, graph)

    found, expected = found_and_expected(getkey(), np.array([-1.0, 0.3, 2.0]), graph)
    np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), atol=1e-6)


@pytest.mark.parametrize("basis", BASES)
def test_scale_moves_all_coefficients_but_the_first(getkey, basis):
    @jax.jit
    def first_weights(key):
        inner = GCDE((2, 40, 2), key=key)
        made = DepthVarying(inner, basis, 3, key=key), DepthVarying(inner, basis, 3, scale=0.1, key=key)
        return [field.coefficients.layers[0].weight for field in made]

    plain, moved = map(np.asarray, first_weights(getkey()))
    shift = moved - plain
    np.testing.assert_array_equal(shift[0], 0)
    assert 0.07 < shift[1:].std() < 0.13


def test_a_scale_of_numpy_is_taken(getkey):
    inner, key = GCDE((2, 2), key=getkey()), getkey()
    plain = DepthVarying(inner, "fourier", 3, scale=0.1, key=key)
    assert eqx.tree_equal(DepthVarying(inner, "fourier", 3, scale=np.float64(0.1), key=key), plain)


@pytest.mark.parametrize(
    ("basis", "degree", "expected"),
    [
        ("fourier", 4, None),
        ("chebyshev", 4, None),
        ("piecewise", 4, [1.5, 2.0, 2.5]),
        ("piecewise", 1, None),
        ("piecewise_linear", 5, [1.5, 2.0, 2.5]),
        ("piecewise_linear", 2, None),
    ],
)
def test_breakpoints(basis, degree, expected):
    field = DepthVarying(Constant(jnp.zeros(())), basis, degree, (1.0, 3.0))
    for wrapped in (field, SecondOrder(field), WithTime(SecondOrder(field))):
        found = breakpoints_of(wrapped)
        np.testing.assert_allclose(found, expected) if expected else np.testing.assert_(found is None)


def test_breakpoints_of_nested_fields_and_of_functions():
    inner = DepthVarying(Constant(jnp.zeros(())), "piecewise", 4, (0.0, 1.0))
    both = DepthVarying(inner, "piecewise", 3, (0.0, 1.5))
    np.testing.assert_allclose(breakpoints_of(both), [0.25, 0.5, 0.75, 1.0])
    assert breakpoints_of(lambda t, z, graph: z) is None
    assert breakpoints_of(SecondOrder(lambda t, z, graph: z)) is None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_breakpoint_belongs_to_the_cell_on_its_right(x64, dtype):
    """Also where it is no exact number of the dtype that time is kept in."""
    degree = 7
    field = DepthVarying(Constant(jnp.zeros((), dtype)), "piecewise", degree, (0.0, 1.0))
    breakpoints = np.asarray(breakpoints_of(field), dtype)
    values = np.arange(degree, dtype=dtype)
    np.testing.assert_array_equal(theta("piecewise", values, breakpoints, (0.0, 1.0)), np.arange(1, degree))
    before = np.nextafter(breakpoints, np.zeros_like(breakpoints))
    np.testing.assert_array_equal(theta("piecewise", values, before, (0.0, 1.0)), np.arange(degree - 1))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"basis": "furier"}, "unknown basis 'furier'. Did you mean 'fourier'"),
        ({"degree": 0}, "degree: .* got 0"),
        ({"interval": (1.0, 1.0)}, r"t0 < t1, got \(1.0, 1.0\)"),
        ({"interval": (2.0, 1.0)}, r"t0 < t1, got \(2.0, 1.0\)"),
        ({"scale": 0.1}, "key: "),
        ({"field": lambda t, z, graph: z}, "has none"),
    ],
)
def test_bad_arguments_are_refused(arguments, says):
    with pytest.raises(InputError, match=says):
        DepthVarying(**{"field": Constant(jnp.zeros(())), **arguments})


def layers(getkey, depth=4):
    """They use t, too: the residual network passes its layer's number."""
    made = []
    for _ in range(depth):
        made.append(WithTime(GCDE((3, 4, 2), key=getkey())))
    return tuple(made)


def test_residual_network_is_euler_with_piecewise_parameters(graph, getkey):
    model = ResidualGNN(layers(getkey))
    z = jax.random.normal(getkey(), (3, 2))
    flow = model.as_depth_varying()
    np.testing.assert_array_equal(flow.breakpoints, [1.0, 2.0, 3.0])
    euler = [z]
    for k in range(4):
        euler.append(euler[-1] + 1.0 * flow(float(k), euler[-1], graph))
    np.testing.assert_allclose(model.states(z, graph), np.stack(euler), atol=1e-6)
    np.testing.assert_allclose(model(z, graph), euler[-1], atol=1e-6)
    # Layers differ, so that taking the wrong one would show.
    assert np.abs(flow(0.0, z, graph) - flow(1.0, z, graph)).max() > 1e-2


def test_residual_network_of_plain_functions(graph):
    model = ResidualGNN((lambda t, z, graph: z, lambda t, z, graph: t * z))
    np.testing.assert_allclose(model(jnp.ones((3, 1)), graph), np.full((3, 1), 4.0))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda getkey: ResidualGNN(()), "got none"),
        (
            lambda getkey: ResidualGNN(
                (GCDE((2, 3, 2), key=getkey()), GCDE((2, 4, 2), key=getkey()))
            ).as_depth_varying(),
            "differ in nothing but",
        ),
        (
            lambda getkey: ResidualGNN(
                (GCDE((2, 2), key=getkey()), GCDE((2, 2), key=getkey(), operator="laplacian"))
            ).as_depth_varying(),
            "differ in nothing but",
        ),
    ],
)
def test_residual_networks_that_cannot_be_are_refused(getkey, make, says):
    with pytest.raises(InputError, match=says):
        make(getkey)
