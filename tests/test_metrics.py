"""Metrics against values worked out by hand, against integrals, and under masks, JAX and gradients."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from neuralgde import InputError, metrics

KEY = jax.random.key(7)
# Two times, two sensors. The second sensor's errors cancel over time.
Y = np.array([[1.0, 2.0], [3.0, 4.0]])
FORECAST = np.array([[2.0, 1.0], [6.0, 6.0]])
LOWER, UPPER = FORECAST - 1.5, FORECAST + np.array([[0.5, 1.0], [1.0, 0.5]])

# name, the arrays of a call, the result by hand
BY_HAND = [
    ("mae", (FORECAST, Y), (1 + 1 + 3 + 2) / 4),
    ("rmse", (FORECAST, Y), math.sqrt((1 + 1 + 9 + 4) / 4)),
    ("rmse_sensor", (FORECAST, Y), (math.sqrt((1 + 9) / 2) + math.sqrt((1 + 4) / 2)) / 2),
    ("nrmse", (FORECAST, Y), math.sqrt(15 / 4) / math.sqrt((2.25 + 0.25 + 0.25 + 2.25) / 4)),
    ("mape", (FORECAST, Y), 100 * (1 + 0.5 + 1 + 0.5) / 4),
    ("mape_paper", (FORECAST, Y), 100 * (abs(-1 - 1) + abs(0.5 - 0.5)) / 4),
    ("median_relative_error", (FORECAST, Y), (0.5 + 1) / 2),
    ("accuracy", (FORECAST, np.array([[2.0, 1.0], [6.0, 0.0]])), 3 / 4),
    ("coverage", (LOWER, UPPER, Y), 2 / 4),
    ("interval_width", (LOWER, UPPER), 1.5 + 3 / 4),
    ("pinball", (FORECAST, Y, 0.9), (0.1 * 1 + 0.9 * 1 + 0.1 * 3 + 0.1 * 2) / 4),
    ("crps_samples", (np.stack([Y - 1, Y + 2]), Y), (1 + 2) / 2 - (3 + 3) / 8),
    ("crps_gaussian", (Y, np.full((2, 2), 2.0), Y), 2 * (math.sqrt(2) - 1) / math.sqrt(math.pi)),
    ("log_likelihood", (Y + 2, np.full((2, 2), 2.0), Y), -0.5 - math.log(2) - math.log(2 * math.pi) / 2),
]
NAMES = [name for name, *_ in BY_HAND]
WITH_AXIS = [case for case in BY_HAND if case[0] not in ("rmse_sensor", "nrmse", "mape_paper", "median_relative_error")]


def as_jax(arrays, dtype=jnp.float32):
    return tuple(a if isinstance(a, float) else jnp.asarray(a, dtype) for a in arrays)


def score(name, arrays, library=np, **options):
    """The metric of these arrays: with JAX in one program, where a level stays a number."""
    arrays, level = (arrays[:2], arrays[2:]) if name == "pinball" else (arrays, ())

    def metric(arrays, options):
        return getattr(metrics, name)(*arrays, *level, **options)

    return (jax.jit(metric) if library is jnp else metric)(arrays, options)


@pytest.mark.parametrize("name, arrays, expected", BY_HAND, ids=NAMES)
def test_by_hand(name, arrays, expected):
    found = score(name, arrays)
    assert isinstance(found, np.float64)
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name, arrays, expected", BY_HAND, ids=NAMES)
def test_jax_in_jax_out(name, arrays, expected):
    found = score(name, as_jax(arrays), jnp)
    assert isinstance(found, jax.Array) and found.shape == () and found.dtype == jnp.float32
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name, arrays, expected", BY_HAND, ids=NAMES)
@pytest.mark.parametrize("library", [np, jnp], ids=["numpy", "jax"])
def test_masked_points_have_no_effect(name, arrays, expected, library):
    # A third time and a third sensor of NaN, switched off.
    mask = np.zeros((3, 3), bool)
    mask[:2, :2] = True

    def grown(a):
        if isinstance(a, float):
            return a
        out = np.full((*a.shape[:-2], 3, 3), np.nan)
        out[..., :2, :2] = a
        return library.asarray(out)

    found = score(name, tuple(map(grown, arrays)), library, mask=library.asarray(mask))
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name, arrays, expected", BY_HAND, ids=NAMES)
@pytest.mark.parametrize("library", [np, jnp], ids=["numpy", "jax"])
def test_nothing_left_is_nan(name, arrays, expected, library, recwarn):
    mask = np.zeros((2, 2), bool)
    assert np.isnan(score(name, arrays, library, mask=mask))
    empty = tuple(a if isinstance(a, float) else np.zeros((*a.shape[:-2], 0, 2)) for a in arrays)
    assert np.isnan(score(name, empty, library))
    assert not recwarn.list


@pytest.mark.parametrize("name, arrays, expected", BY_HAND, ids=NAMES)
def test_nan_is_not_hidden(name, arrays, expected):
    first = np.array(arrays[0])
    first[..., 1, 1] = np.nan
    assert np.isnan(getattr(metrics, name)(first, *arrays[1:]))


@pytest.mark.parametrize("name, arrays, expected", WITH_AXIS, ids=[name for name, *_ in WITH_AXIS])
def test_axis_gives_one_result_per_sensor(name, arrays, expected):
    metric = getattr(metrics, name)
    per_sensor = metric(*arrays, axis=0)
    alone = [metric(*(a if isinstance(a, float) else a[..., [i]] for a in arrays)) for i in range(2)]
    np.testing.assert_allclose(per_sensor, alone, rtol=1e-12)
    # Everything at once is what two axes give.
    assert metric(*arrays, axis=(0, 1)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name, arrays, expected", BY_HAND, ids=NAMES)
def test_float64_under_x64(name, arrays, expected, x64):
    # Counts and float32 meet float64: the widest float wins, promotion being strict.
    first, *rest = as_jax(arrays, jnp.float64)
    found = score(name, (jnp.asarray(first, jnp.float32), *rest), jnp)
    assert found.dtype == jnp.float64


def test_a_mask_of_jax_with_numbers_of_numpy():
    found = metrics.mae(FORECAST, Y, mask=jnp.zeros((2, 2), bool))
    assert isinstance(found, jax.Array) and np.isnan(found)


def test_dtypes_of_counts_and_single_numbers(x64):
    counts = jnp.asarray(Y, jnp.int32)
    assert metrics.mae(jnp.asarray(FORECAST, jnp.float32), counts).dtype == jnp.float32
    assert metrics.mae(1.5, jnp.asarray(Y, jnp.float32)).dtype == jnp.float32
    assert metrics.mae(counts, counts).dtype == jnp.float64


SHAPE_ERRORS = [
    ("forecast", lambda: metrics.mae(np.ones((2, 3)), Y)),
    ("forecast", lambda: metrics.rmse_sensor(np.ones((1, 2)), Y)),
    ("forecast", lambda: metrics.mape(jnp.ones(2), jnp.ones((2, 2)))),
    ("lower", lambda: metrics.coverage(np.ones(2), UPPER, Y)),
    ("upper", lambda: metrics.coverage(LOWER, np.ones((3, 2)), Y)),
    ("upper", lambda: metrics.interval_width(LOWER, np.ones((3, 2)))),
    ("q", lambda: metrics.pinball(np.ones((2, 1)), Y, 0.5)),
    ("samples", lambda: metrics.crps_samples(Y, Y)),
    ("samples", lambda: metrics.crps_samples(np.ones((5, 2, 3)), Y)),
    ("samples", lambda: metrics.pit(np.ones((5, 2)), Y, key=KEY)),
    ("std", lambda: metrics.crps_gaussian(Y, np.ones((1, 2)), Y)),
    ("mean", lambda: metrics.log_likelihood(np.ones((1, 2)), 1.0, Y)),
    ("mask", lambda: metrics.mae(FORECAST, Y, mask=np.ones(2, bool))),
]


@pytest.mark.parametrize("name, call", SHAPE_ERRORS)
def test_shape_error_names_the_argument(name, call):
    with pytest.raises(InputError, match=rf"^{name}: expected the shape of \w+, \(2, 2\),.* got \("):
        call()


@pytest.mark.parametrize(
    "message, call",
    [
        ("mask: expected True", lambda: metrics.mae(FORECAST, Y, mask=np.ones((2, 2)))),
        ("forecast: expected real numbers", lambda: metrics.mae(FORECAST + 1j, Y)),
        ("level: expected a number between 0 and 1", lambda: metrics.pinball(FORECAST, Y, 90.0)),
        ("samples: expected at least 2", lambda: metrics.crps_samples(Y[None], Y, fair=True)),
        ("std: expected 0 or more, got -1", lambda: metrics.crps_gaussian(Y, -1.0, Y)),
    ],
)
def test_other_bad_input(message, call):
    with pytest.raises(InputError, match=message):
        call()


# Errors of a forecast that is one number a point


def test_a_single_number_stands_for_all_points():
    assert metrics.mae(1.0, Y) == metrics.mae(np.ones((2, 2)), Y) == 1.5
    assert metrics.coverage(0.0, 3.0, Y) == 0.75
    assert metrics.interval_width(0.0, Y) == 2.5


def test_sensors_of_three_axes():
    rng = np.random.default_rng(0)
    forecast, y = rng.normal(size=(2, 7, 4, 3))
    flat = metrics.rmse_sensor(forecast.reshape(7, 12), y.reshape(7, 12))
    assert metrics.rmse_sensor(forecast, y) == pytest.approx(flat, rel=1e-12)
    assert flat < metrics.rmse(forecast, y)


def test_sensor_mean_leaves_out_sensors_without_points():
    mask = np.array([[True, False], [False, False]])
    assert metrics.rmse_sensor(FORECAST, Y, mask=mask) == 1
    # The sensor with fewer points weighs as much as the other.
    mask = np.array([[True, True], [False, True]])
    assert metrics.rmse_sensor(FORECAST, Y, mask=mask) == pytest.approx((1 + math.sqrt(2.5)) / 2)
    assert metrics.mape_paper(FORECAST, Y, mask=mask) == pytest.approx(100 * (1 + 0) / 2)


@pytest.mark.parametrize("library", [np, jnp], ids=["numpy", "jax"])
def test_zero_truth_is_left_out_of_relative_errors(library):
    y = np.array([[0.0, 2.0], [0.0, 4.0], [0.0, -5.0]])
    forecast = np.array([[1.0, 3.0], [1.0, 3.0], [1.0, -5.5]])
    expected = {
        "mape": 100 * (0.5 + 0.25 + 0.1) / 3,
        "mape_paper": 100 * abs(-0.5 + 0.25 - 0.1) / 3,
        "median_relative_error": 0.25,
    }
    for name, value in expected.items():
        assert score(name, (forecast, y), library) == pytest.approx(value)
        assert np.isnan(score(name, (forecast[:, :1], y[:, :1]), library))


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_median_equals_numpy(count):
    rng = np.random.default_rng(count)
    forecast, y = rng.normal(size=(2, 4, 3))
    mask = rng.permutation(12).reshape(4, 3) < count
    expected = np.median(abs(forecast - y)[mask] / abs(y)[mask])
    assert metrics.median_relative_error(forecast, y, mask=mask) == pytest.approx(expected, rel=1e-12)


def test_nrmse_scale():
    rng = np.random.default_rng(0)
    y, model, persistence = 5 + 2 * rng.normal(size=(3, 50, 4))
    assert metrics.nrmse(y.mean(), y) == pytest.approx(1, rel=1e-12)
    assert metrics.nrmse(10 * model + 3, 10 * y + 3) == pytest.approx(metrics.nrmse(model, y), rel=1e-12)
    share = metrics.nrmse(model, y) / metrics.nrmse(persistence, y)
    assert share == pytest.approx(metrics.rmse(model, y) / metrics.rmse(persistence, y), rel=1e-12)
    assert metrics.nrmse(Y, np.ones((2, 2))) == math.inf


# Intervals and quantiles


def test_coverage_of_infinite_intervals_and_ends():
    assert metrics.coverage(-math.inf, math.inf, Y) == 1
    assert metrics.coverage(Y, Y, Y) == 1
    assert metrics.coverage(UPPER, LOWER, Y) == 0
    assert np.isnan(metrics.coverage(LOWER, UPPER, np.where(Y == 1, np.nan, Y)))


@pytest.mark.parametrize("level", [0.1, 0.5, 0.9])
def test_pinball_is_least_at_the_quantile(level):
    y = np.random.default_rng(0).normal(size=(401, 1))
    grid = np.linspace(-3, 3, 1201)
    losses = [metrics.pinball(q, y, level) for q in grid]
    assert grid[np.argmin(losses)] == pytest.approx(np.quantile(y, level, method="inverted_cdf"), abs=0.01)
    assert metrics.pinball(0.3, y, 0.5) == pytest.approx(metrics.mae(0.3, y) / 2)


# Distributions


@pytest.mark.parametrize("y", [-2.0, 0.4, 1.0, 5.0])
def test_crps_samples_is_the_integral(y):
    x = np.sort(np.random.default_rng(3).normal(size=6))
    knots = np.sort(np.append(x, y))
    steps = (np.searchsorted(x, knots[:-1], side="right") / 6 - (knots[:-1] >= y)) ** 2
    assert metrics.crps_samples(x, np.array(y)) == pytest.approx((steps * np.diff(knots)).sum(), rel=1e-12)


@pytest.mark.parametrize("fair", [False, True])
def test_crps_samples_is_the_sum_over_pairs(fair):
    rng = np.random.default_rng(0)
    x, y = rng.poisson(2, size=(5, 3, 2)), rng.poisson(2, size=(3, 2))
    pairs = abs(x[:, None] - x[None, :]).sum((0, 1)) / (20 if fair else 25)
    expected = (abs(x - y).mean(0) - pairs / 2).mean()
    assert metrics.crps_samples(x, y, fair=fair) == pytest.approx(expected, rel=1e-12)


def test_one_sample_scores_its_error():
    assert metrics.crps_samples(FORECAST[None], Y) == pytest.approx(metrics.mae(FORECAST, Y), rel=1e-12)


def test_fair_crps_does_not_depend_on_the_number_of_samples():
    # Over 40000 points its mean is the score of the distribution itself, within four standard errors.
    rng = np.random.default_rng(0)
    y = rng.normal(size=40_000)
    exact = metrics.crps_gaussian(0.0, 1.0, y)
    for m in (2, 5):
        samples = rng.normal(size=(m, 40_000))
        assert metrics.crps_samples(samples, y, fair=True) == pytest.approx(exact, abs=0.02)
        assert metrics.crps_samples(samples, y) > exact + 0.5 / m * 0.8


def test_crps_samples_far_from_zero_keeps_its_digits():
    x, y = np.random.default_rng(0).normal(size=(2, 8, 5))
    near = metrics.crps_samples(x[:, None], y[:1])
    far = metrics.crps_samples(jnp.asarray(x[:, None] + 4096, jnp.float32), jnp.asarray(y[:1] + 4096, jnp.float32))
    assert far == pytest.approx(near, abs=2e-3)


@pytest.mark.parametrize("mean, std, y", [(0.0, 1.0, 0.3), (2.0, 0.5, -1.0), (-1.0, 3.0, 4.0)])
def test_crps_gaussian_is_the_integral(mean, std, y):
    def integrand(x):
        return (scipy.stats.norm.cdf(x, mean, std) - (x >= y)) ** 2

    expected = sum(scipy.integrate.quad(integrand, a, b)[0] for a, b in [(mean - 40, y), (y, mean + 40)])
    assert metrics.crps_gaussian(mean, std, np.array([y])) == pytest.approx(expected, rel=1e-6)


def test_crps_gaussian_of_many_quantiles_is_that_of_samples():
    x = scipy.stats.norm.ppf((np.arange(4000) + 0.5) / 4000, 1.0, 2.0)
    y = np.array([-3.0, 0.0, 2.0])
    samples = metrics.crps_samples(np.broadcast_to(x[:, None], (4000, 3)), y)
    assert metrics.crps_gaussian(1.0, 2.0, y) == pytest.approx(samples, rel=1e-3)


@pytest.mark.parametrize("library", [np, jnp], ids=["numpy", "jax"])
def test_gaussian_without_spread(library):
    y, mean = library.asarray(Y), library.asarray(FORECAST)
    assert metrics.crps_gaussian(mean, 0.0, y) == pytest.approx(metrics.mae(FORECAST, Y))
    assert metrics.log_likelihood(mean, 0.0, y) == -math.inf
    assert metrics.log_likelihood(y, 0.0, y) == math.inf


def test_negative_std_shows_in_jax():
    assert np.isnan(jax.jit(metrics.crps_gaussian)(jnp.zeros(2), -jnp.ones(2), jnp.zeros(2)))
    assert np.isnan(jax.jit(metrics.log_likelihood)(jnp.zeros(2), -jnp.ones(2), jnp.zeros(2)))


def test_log_likelihood_equals_scipy():
    mean, y = np.random.default_rng(0).normal(size=(2, 5, 3))
    std = np.exp(mean)
    expected = scipy.stats.norm.logpdf(y, mean, std).mean()
    assert metrics.log_likelihood(mean, std, y) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    "draw", [lambda r, s: r.normal(size=s), lambda r, s: r.poisson(0.3, size=s)], ids=["normal", "counts with zeros"]
)
def test_pit_is_uniform_for_a_calibrated_forecast(draw):
    rng = np.random.default_rng(0)
    u = metrics.pit(draw(rng, (9, 2000, 2)), draw(rng, (2000, 2)), key=KEY)
    assert u.shape == (2000, 2) and u.min() >= 0 and u.max() < 1
    assert scipy.stats.kstest(u.ravel(), "uniform").pvalue > 0.01


def test_pit_shows_a_forecast_that_is_too_narrow_or_too_low():
    rng = np.random.default_rng(0)
    y = rng.poisson(3, size=(1000, 1))
    narrow = metrics.pit(np.full((9, 1000, 1), 3), y, key=KEY)
    assert np.mean((narrow < 0.1) | (narrow > 0.9)) > 0.5
    assert metrics.pit(rng.poisson(1, size=(9, 1000, 1)), y, key=KEY).mean() > 0.7


def test_pit_by_hand_and_by_key():
    samples = np.array([0, 0, 1, 5])[:, None]
    u = float(jax.random.uniform(KEY, (1,))[0])
    assert metrics.pit(samples, np.array([0]), key=KEY) == pytest.approx((0 + 3 * u) / 5)
    assert metrics.pit(samples, np.array([2]), key=KEY) == pytest.approx((3 + u) / 5)
    many = np.zeros((4, 50)), np.zeros(50)
    np.testing.assert_array_equal(metrics.pit(*many, key=KEY), metrics.pit(*many, key=KEY))
    assert not np.array_equal(metrics.pit(*many, key=KEY), metrics.pit(*many, key=jax.random.key(8)))


@pytest.mark.parametrize("library", [np, jnp], ids=["numpy", "jax"])
def test_pit_masks_and_marks_nan(library):
    y = library.asarray([[0.0, np.nan], [1.0, 2.0]])
    mask = library.asarray([[True, True], [False, True]])
    u = metrics.pit(library.zeros((3, 2, 2)), y, key=KEY, mask=mask)
    assert isinstance(u, type(y))
    np.testing.assert_array_equal(np.isnan(u), [[False, True], [True, False]])


# As losses


@pytest.mark.parametrize(
    "loss",
    [
        lambda z, y, mask: metrics.mae(z, y, mask=mask),
        lambda z, y, mask: metrics.rmse(z, y, mask=mask),
        lambda z, y, mask: metrics.rmse_sensor(z, y, mask=mask),
        lambda z, y, mask: metrics.mape(z, y, mask=mask),
        lambda z, y, mask: metrics.pinball(z, y, 0.9, mask=mask),
        lambda z, y, mask: metrics.crps_samples(jnp.stack([z, 2 * z]), y, mask=mask),
        lambda z, y, mask: metrics.crps_gaussian(z, jnp.exp(z), y, mask=mask),
        lambda z, y, mask: -metrics.log_likelihood(z, jnp.exp(z), y, mask=mask),
    ],
    ids=["mae", "rmse", "rmse_sensor", "mape", "pinball", "crps_samples", "crps_gaussian", "log_likelihood"],
)
def test_gradients_are_finite_under_a_mask(loss, x64):
    # The last sensor has no point at all, and a point that counts has truth 0.
    y = np.array([[0.0, np.nan, np.nan], [3.0, 4.0, np.nan]])
    mask = np.array([[True, False, False], [True, True, False]])
    z = np.array([[0.5, 0.2, 0.1], [-0.3, 0.4, 0.2]])
    gradient = jax.jit(jax.grad(loss))(z, y, mask)
    loss = jax.jit(loss)
    assert np.all(np.asarray(gradient)[~mask] == 0)
    for at in [(0, 0), (1, 0), (1, 1)]:
        step = np.zeros(z.shape)
        step[at] = 1e-6
        slope = (loss(z + step, y, mask) - loss(z - step, y, mask)) / 2e-6
        assert gradient[at] == pytest.approx(float(slope), abs=1e-7)
