"""NeuralGSDE and the latent model: shapes, masks and irregular windows, the ELBO against exact values, the guard."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuralgde as gde
from neuralgde.model import Gaussian, collapse_report

KEY = jax.random.key(0)
OBSERVED = (0, 2)
TIMES = (0.0, 0.3, 0.7)
FIXED = gde.SolveConfig(solver="heun", dt0=0.1)


def graph():
    """Two observed nodes, two latent ones between them, edges both ways."""
    return gde.Graph.from_edges([0, 1, 1, 2, 2, 3, 3, 0], [1, 0, 2, 1, 3, 2, 0, 3], num_nodes=4)


def window(seed=0, steps=6, missing=()):
    rng = np.random.default_rng(seed)
    values = np.full((steps, 4, 1), np.nan)
    values[:, OBSERVED] = rng.standard_normal((steps, 2, 1))
    for k, node in missing:
        values[k, node] = np.nan
    return gde.GraphStream(-np.sort(rng.uniform(0, 2, steps))[::-1], values.astype(np.float32), graph())


# One program for all that a model starts with, in place of one for each shape.
@eqx.filter_jit
def encoder(kind, features=1, **options):
    if kind == "tcn":
        return gde.TCNEncoder(4, OBSERVED, features=features, hidden=8, key=KEY, **options)
    return gde.GraphEncoder(features=features, hidden=8, key=KEY, **options)


@eqx.filter_jit
def model(kind="tcn", sde=True, features=1, **options):
    nets = gde.NeuralGSDE(features, 3, key=jax.random.key(1))
    return gde.LatentGDE(
        encoder(kind, features), nets.drift, nets.diffusion if sde else None, observed=OBSERVED, **options
    )


def constant(size):
    return lambda t, z, g: jnp.full_like(z, size)


@eqx.filter_jit
def read(encoder, stream):
    return encoder(stream)


@eqx.filter_jit
def predict(m, stream, samples):
    return m(stream, TIMES, key=KEY, samples=samples)


class Fixed(eqx.Module):
    """An encoder that has made up its mind."""

    mean: jax.Array
    scale: jax.Array

    def __call__(self, stream):
        return Gaussian(self.mean, self.scale)


def test_neural_gsde():
    m = eqx.filter_jit(gde.NeuralGSDE)(2, 3, heads=2, key=KEY)
    x = jnp.ones((3, 4, 2))
    z = np.linspace(-30, 30, 8, dtype=np.float32).reshape(4, 2)
    nets = eqx.filter_jit(lambda m, z, graph: [f(0.0, z, graph) for f in (m.drift, m.diffusion, m.drift.attention)])
    drift, diffusion, (weights,) = nets(m, z, graph())
    assert np.all((diffusion > 0) & (diffusion < 1)) and np.any(drift < 0)
    assert weights.shape == (8 + 4, 2)
    sol = m.solve(x, TIMES, graph(), key=KEY)
    assert np.all(sol.status == gde.Status.SUCCESS)
    np.testing.assert_array_equal(m(x, TIMES, graph(), key=KEY), sol.states)
    states = np.asarray(sol.states)
    assert np.abs(states[0, -1] - states[1, -1]).max() > 0.01


@pytest.mark.parametrize("pair", [(None, jax.nn.sigmoid), (None, None)])
def test_networks_evaluated_together_give_the_same(pair):
    from neuralgde.field import evaluate_pair

    @eqx.filter_jit
    def together_and_alone(graph):
        keys = jax.random.split(KEY)
        both = [gde.GSDEField((2, 3, 3, 2), final_activation=a, key=k) for a, k in zip(pair, keys, strict=True)]
        z = jax.random.normal(KEY, (4, 2))
        return evaluate_pair(*both, 0.0, z, graph), [field(0.0, z, graph) for field in both]

    for found, expected in zip(*together_and_alone(graph()), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("kind", "sde"), [("tcn", True), ("graph", False)])
def test_one_window_and_a_batch(kind, sde):
    m = model(kind, sde, config=FIXED)
    one = predict(m, window(), samples=5)
    assert one.states.shape == (5, 3, 4, 1)
    assert one.path_kl is None
    assert one.observations.shape == (5, 3, 2, 1)
    states = np.asarray(one.states)
    np.testing.assert_array_equal(one.observations, states[:, :, OBSERVED])
    assert one.posterior.mean.shape == (4, 1)
    assert np.all(one.status == gde.Status.SUCCESS)
    assert len(np.unique(states[:, -1, 0, 0])) == 5

    streams = [window(0), window(1, steps=4, missing=[(0, 0), (2, 2)])]
    both = predict(m, gde.GraphStream.stack(streams), samples=2)
    assert both.states.shape == (2, 2, 3, 4, 1)
    assert both.status.shape == (2, 2)
    for b, stream in enumerate(streams):
        alone = read(m.posterior, stream).mean
        np.testing.assert_allclose(np.asarray(both.posterior.mean)[b], alone, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["tcn", "graph"])
def test_encoders_see_times_and_masks_but_no_padding(kind):
    reader = encoder(kind)

    def mean(stream):
        return np.asarray(read(reader, stream).mean)

    base = mean(window())
    np.testing.assert_allclose(mean(window().pad(9)), base, rtol=1e-4, atol=1e-6)
    assert np.abs(mean(window(missing=[(5, 0)])) - base).max() > 1e-4
    later = eqx.tree_at(lambda s: s.times, window(), 3 * np.asarray(window().times))
    assert np.abs(mean(later) - base).max() > 1e-4
    assert np.all(np.asarray(read(reader, window()).scale) > 0)
    # A value that was not observed cannot matter.
    values = np.array(window().values)
    values[:, 1] = 7.0
    if kind == "tcn":
        np.testing.assert_array_equal(mean(eqx.tree_at(lambda s: s.values, window(), values)), base)


@eqx.filter_jit
def bound(m, targets, mask=None, *, samples, kl_weight):
    return m.elbo(window(), TIMES, targets, mask, key=KEY, samples=samples, kl_weight=kl_weight)


@pytest.mark.usefixtures("x64")
def test_elbo_is_what_it_says():
    """A drift of zero and no noise: everything is a normal distribution that can be written down."""
    mean = np.array([[0.5], [0.0], [-1.0], [2.0]])
    scale = np.array([[0.2], [1.0], [0.3], [0.5]])
    still = gde.LatentGDE(
        Fixed(jnp.asarray(mean), jnp.asarray(scale)),
        lambda t, z, g: 0 * z,
        observed=OBSERVED,
        noise_scale=0.7,
        config=FIXED,
    )
    targets = np.array([[[0.1], [0.2]]] * 3)
    seen = np.ones((3, 2, 1), bool)
    seen[1, 0] = False

    def found(mask, weight):
        return bound(still, targets, mask, samples=20_000, kl_weight=np.asarray(weight))

    square = (targets[0] - mean[list(OBSERVED)]) ** 2 + scale[list(OBSERVED)] ** 2
    each = -square / (2 * 0.49) - np.log(0.7) - np.log(2 * np.pi) / 2
    kl = np.sum((mean**2 + scale**2 - 1) / 2 - np.log(scale))
    full, half, part = found(seen | True, 1.0), found(seen | True, 0.5), found(seen, 1.0)
    np.testing.assert_allclose(full.log_likelihood, 3 * each.sum(), rtol=0.01)
    np.testing.assert_allclose(part.log_likelihood, 3 * each.sum() - each[0, 0], rtol=0.01)
    np.testing.assert_allclose(full.kl, kl, rtol=1e-6)
    np.testing.assert_allclose(full.value, float(full.log_likelihood) - kl, rtol=1e-6)
    np.testing.assert_allclose(half.value, float(full.log_likelihood) - kl / 2, rtol=1e-6)


def test_path_kl_by_girsanov():
    """Constant drifts a and b with noise s diverge by (a - b)^2 / (2 s^2) per unit of time and node."""
    start = Fixed(jnp.zeros((4, 1)), jnp.full((4, 1), 0.1))
    drift, prior = constant(0.5), constant(0.2)
    m = gde.LatentGDE(start, drift, constant(0.4), observed=OBSERVED, prior_drift=prior, config=FIXED)
    elbo = bound(m, jnp.zeros((3, 2, 1)), samples=3, kl_weight=1.0)
    np.testing.assert_allclose(elbo.path_kl, 4 * 0.7 * 0.3**2 / (2 * 0.4**2), rtol=1e-4)
    np.testing.assert_allclose(elbo.value, elbo.log_likelihood - elbo.kl - elbo.path_kl, rtol=1e-5)


def test_gradients_reach_every_part():
    m = model("graph", learn_noise=True, prior_drift=eqx.filter_jit(gde.GSDEField)(key=jax.random.key(5)))
    streams = gde.GraphStream.stack([window(0), window(1)])
    # What is missing may be NaN.
    targets = np.zeros((2, 3, 2, 1), np.float32)
    targets[0, 1] = np.nan

    @eqx.filter_jit
    @eqx.filter_grad
    def grad(m, streams, targets):
        return -jnp.mean(m.elbo(streams, TIMES, targets, ~jnp.isnan(targets), key=KEY, samples=2).value)

    grads = grad(m, streams, targets)
    for part in (
        grads.encoder.layers,
        grads.encoder.tcn,
        grads.drift,
        grads.diffusion,
        grads.prior_drift,
        grads.log_noise,
    ):
        sizes = [np.abs(x).max() for x in jax.tree.leaves(jax.device_get(part))]
        assert np.isfinite(sizes).all()
        assert max(sizes) > 1e-6


def test_attention_along_the_solution():
    m = model()
    states = jax.random.normal(KEY, (3, 4, 1))
    g = graph()
    (weights,) = jax.device_get(eqx.filter_jit(lambda m, states, g: m.attention(states, TIMES, g))(m, states, g))
    assert weights.shape == (3, 8 + 4, 1)
    arriving = np.zeros((3, 4))
    for e, receiver in enumerate([*np.asarray(g.receivers), *range(4)]):
        arriving[:, receiver] += weights[:, e, 0]
    np.testing.assert_allclose(arriving, 1, rtol=1e-5)
    with pytest.raises(gde.InputError, match="attention"):
        gde.LatentGDE(encoder("tcn"), lambda t, z, g: z, observed=OBSERVED).attention(states, TIMES, graph())


@pytest.mark.parametrize(("collapsed", "noise"), [(False, 0.3), (True, 1e-5)])
def test_the_guard_tells_of_collapse(collapsed, noise):
    class Far(eqx.Module):
        """A posterior that depends on the window, at the observed nodes."""

        def __call__(self, stream):
            mean = jnp.sum(stream.values, axis=0)
            return Gaussian(mean + 1.0, jnp.full_like(mean, 0.2))

    read = Fixed(jnp.zeros((4, 1)), jnp.ones((4, 1))) if collapsed else Far()
    m = gde.LatentGDE(read, lambda t, z, g: -z, constant(noise), observed=OBSERVED, config=FIXED)
    report = collapse_report(m, gde.GraphStream.stack([window(s) for s in range(4)]), TIMES, key=KEY)
    assert report.posterior_collapsed == report.noise_collapsed == collapsed
    np.testing.assert_allclose(report.diffusion, noise, rtol=1e-4)
    if collapsed:
        assert "posterior collapse" in report.message
        assert "noise collapse" in report.message
        assert report.noise_share < 1e-6
    else:
        assert report.message == ""
        assert report.active_share == 0.5
        # Ornstein-Uhlenbeck: what is left of the start's variance, and what the noise has added.
        start, added = 0.2**2 * np.exp(-1.4), 0.3**2 * (1 - np.exp(-1.4)) / 2
        np.testing.assert_allclose(report.noise_share, added / (start + added), rtol=0.25)


def test_kl_schedule():
    schedule = gde.KLSchedule(first=0.1, last=1.1, wait=10, rise=20)
    np.testing.assert_allclose([float(schedule(s)) for s in (0, 10, 20, 30, 99)], [0.1, 0.1, 0.6, 1.1, 1.1], rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: gde.LatentGDE(encoder("tcn"), gde.GSDEField(key=KEY), observed=[]), ["observed"]),
        (lambda: gde.TCNEncoder(4, [0, 4], key=KEY), ["observed", "0..3", "4"]),
        (lambda: gde.TCNEncoder(4, [0, 0], key=KEY), ["observed", "each once"]),
        (lambda: model(noise_scale=0.0), ["noise_scale", "0.0"]),
        (lambda: model(sde=False, prior_drift=gde.GSDEField(key=KEY)), ["prior_drift", "diffusion"]),
        (lambda: gde.GraphEncoder(depth=0, key=KEY), ["depth", "0"]),
        (lambda: gde.GSDEField((1, 3, 1), key=KEY), ["widths", "4"]),
        (lambda: gde.KLSchedule(rise=0), ["rise", "0"]),
    ],
)
def test_bad_arguments_are_named(make, names):
    with pytest.raises(gde.InputError) as error:
        make()
    for name in names:
        assert name in str(error.value)


def test_last_value_encoder_starts_where_it_was_seen():
    inside = Fixed(jnp.full((4, 2), 2.0), jnp.full((4, 2), 0.5))
    found = gde.model.LastValueEncoder(inside, OBSERVED, spread=0.01)(window(missing=[(5, 2)]))
    values = window().values
    np.testing.assert_allclose(found.mean[:, 0], [values[5, 0, 0] + 0.02, 2.0, values[4, 2, 0] + 0.02, 2.0], rtol=1e-6)
    np.testing.assert_allclose(found.std[:, 0], [0.005, 0.5, 0.005, 0.5], rtol=1e-6)
    # The second feature is not observed.
    np.testing.assert_array_equal(found.mean[:, 1], inside.mean[:, 1])


def test_windows_that_share_a_graph():
    m = model(config=FIXED)
    streams = [window(0), window(1)]
    both = gde.GraphStream.batch(
        *(jnp.stack([getattr(s, name) for s in streams]) for name in ("times", "values")),
        graph(),
        jnp.stack([s.mask for s in streams]),
    )
    assert m.last_graph(both).senders.ndim == 1
    for b, stream in enumerate(streams):
        np.testing.assert_allclose(
            read(m.posterior, both).mean[b], read(m.posterior, stream).mean, rtol=1e-4, atol=1e-6
        )
