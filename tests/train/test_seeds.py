"""Many seeds in one program: each as if it were alone, and none stopped by another."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neuralgde._errors import InputError
from neuralgde.graph import Graph
from neuralgde.integrate import SolveConfig
from neuralgde.model import NeuralGDE
from neuralgde.train import TrainConfig, TrainStatus, fit, fit_seeds, make_seeds, take_seed

KEY = jax.random.key(2)


class Scalar(eqx.Module):
    """One parameter, and a number that its loss is scaled by."""

    w: jax.Array
    scale: jax.Array


def scalars(starts, scales=1.0):
    starts = jnp.asarray(starts, jnp.float32)
    return Scalar(starts, jnp.broadcast_to(jnp.float32(scales), starts.shape))


def parabola(model, target, key):
    return model.scale * (model.w - target) ** 2


def fails_below_zero(model, target, key):
    return jnp.where(model.w < 0, jnp.nan, 1.0) * parabola(model, target, key)


def sgd(steps, **options):
    return TrainConfig(steps=steps, optimiser="sgd", rate=0.1, **options)


def test_models_of_many_seeds_are_those_of_each():
    keys = jax.random.split(KEY, 3)
    together = make_seeds(lambda key: eqx.nn.Linear(2, 3, key=key), keys)
    again = make_seeds(lambda key: eqx.nn.Linear(2, 3, key=key), jax.random.key_data(keys))
    for i, key in enumerate(keys):
        alone = eqx.nn.Linear(2, 3, key=key).weight
        np.testing.assert_allclose(together.weight[i], alone, rtol=1e-6)
        np.testing.assert_allclose(again.weight[i], alone, rtol=1e-6)


@pytest.mark.parametrize(("same_order", "in_turn"), [(False, False), (True, False), (False, True), (True, True)])
def test_each_seed_as_if_alone(same_order, in_turn):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 10, 3)).astype(np.float32)

    def loss(model, batch, key):
        x, y = batch
        return jnp.mean((jax.vmap(model)(x + 0.1 * jax.random.normal(key, x.shape)) - y) ** 2)

    def make(key):
        return eqx.nn.MLP(3, 3, 4, 1, key=key)

    starts, keys = jax.random.split(jax.random.key(0), 3), jax.random.split(KEY, 3)
    config = TrainConfig(epochs=6, batch_size=4, log_every=5, clip=0.5, same_order=same_order)
    together = fit_seeds(
        eqx.filter_vmap(make)(starts), loss, (x, y), config, key=KEY, validation=(x, y), in_turn=in_turn
    )
    assert together.history["loss"].shape == (3, 3) and together.history["rate"].shape == (3,)
    for i in range(3):
        alone = fit(make(starts[i]), loss, (x, y), config, key=keys[i], validation=(x, y))
        if same_order and i:
            assert not np.allclose(together.history["loss"][:, i], alone.history["loss"], rtol=1e-5)
            continue
        for name, values in alone.history.items():
            ours = together.history[name] if name in ("step", "epoch", "rate") else together.history[name][:, i]
            np.testing.assert_allclose(ours, values, rtol=1e-5)
        for a, b in zip(jax.tree.leaves(take_seed(together.best, i)), jax.tree.leaves(alone.best), strict=True):
            if eqx.is_array(a):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_steps_that_are_not_finite_are_skipped():
    data = np.array([1.0, 2.0, np.nan, 4.0], np.float32)

    def loss(model, batch, key):
        return jnp.mean((model.w - batch) ** 2)

    config = sgd(None, epochs=5, batch_size=1, shuffle=False, log_every=4)
    result = fit(take_seed(scalars([0.0]), 0), loss, data, config, key=KEY)
    clean = fit(take_seed(scalars([0.0]), 0), loss, data[[0, 1, 3]], config, key=KEY)
    assert result.skipped == 5 and result.status == TrainStatus.FINISHED and result.steps == 20
    np.testing.assert_array_equal(result.history["skipped"], [1, 2, 3, 4, 5])
    assert result.model.w == clean.model.w
    assert np.all(np.isfinite(result.history["loss"]))


def test_gradients_that_are_not_finite_are_skipped():
    # The loss is 0 at 0, and its slope is not a number.
    result = fit(
        take_seed(scalars([0.0]), 0),
        lambda model, target, key: jnp.sqrt(model.w**2),
        None,
        sgd(3, max_skipped=5),
        key=KEY,
    )
    assert result.skipped == 3 and result.model.w == 0


def test_a_seed_that_only_fails_is_stopped_alone():
    models = scalars([1.0, -1.0, 3.0])
    with pytest.warns(UserWarning, match="1 diverged"):
        result = fit_seeds(models, fails_below_zero, jnp.float32(2.0), sgd(100, max_skipped=7, log_every=10), key=KEY)
    assert result.status.tolist() == [TrainStatus.FINISHED, TrainStatus.DIVERGED, TrainStatus.FINISHED]
    np.testing.assert_array_equal(result.skipped, [0, 7, 0])
    np.testing.assert_array_equal(result.steps, [100, 7, 100])
    np.testing.assert_allclose(result.model.w, [2.0, -1.0, 2.0], atol=1e-5)
    assert np.all(np.isnan(result.history["loss"][:, 1])) and np.all(np.isfinite(result.history["loss"][:, 0]))
    assert result.summary == "3 seed(s): 2 finished, 1 diverged; 7 step(s) skipped."


def test_a_seed_that_explodes_keeps_its_last_good_state():
    # Each step multiplies the distance to the target by 1 - 2 * rate * scale, which is -5 for the second.
    models = scalars([1.0, 1.0], [1.0, 30.0])
    config = sgd(100, log_every=10, divergence=1e6)
    with pytest.warns(UserWarning, match="diverged"):
        result = fit_seeds(models, parabola, jnp.float32(2.0), config, key=KEY, frozen=lambda m: m.scale)
    assert result.status.tolist() == [TrainStatus.FINISHED, TrainStatus.DIVERGED]
    # 25^k > 1e6 for the first time at k = 5, so 5 updates were made and the last of them is taken back.
    assert result.steps[1] == 6
    np.testing.assert_allclose(result.model.w[1] - 2.0, -1.0 * (-5.0) ** 4, rtol=1e-4)
    np.testing.assert_allclose(result.model.w[0], 2.0, atol=1e-5)


def test_no_limit_to_the_loss():
    model, config = take_seed(scalars([1.0], 30.0), 0), sgd(8, divergence=None)
    result = fit(model, parabola, jnp.float32(2.0), config, key=KEY, frozen=lambda m: m.scale)
    assert result.status == TrainStatus.FINISHED
    np.testing.assert_allclose(result.model.w - 2, -((-5.0) ** 8), rtol=1e-4)


def test_training_stops_where_all_diverge():
    with pytest.warns(UserWarning, match="2 diverged"):
        result = fit_seeds(
            scalars([-1.0, -2.0]), fails_below_zero, jnp.float32(2.0), sgd(1000, max_skipped=3, log_every=10), key=KEY
        )
    assert result.history["step"].tolist() == [10]
    np.testing.assert_array_equal(result.model.w, [-1.0, -2.0])


def test_early_stopping_is_by_seed():
    # All go to 3, and are judged by their distance to 1: the first passes it, the second only moves away.
    config = sgd(60, patience=4, log_every=1)
    result = fit_seeds(
        scalars([0.0, 2.0, 0.0], [0.5, 0.5, 0.005]),
        parabola,
        jnp.float32(3.0),
        config,
        key=KEY,
        validation=jnp.float32(1.0),
        metric_fn=lambda model, target, key: jnp.abs(model.w - target),
        frozen=lambda m: m.scale,
    )
    assert result.status.tolist() == [TrainStatus.STOPPED_EARLY, TrainStatus.STOPPED_EARLY, TrainStatus.FINISHED]
    path = 3 - 3 * 0.9 ** np.arange(61)
    best = np.argmin(np.abs(path - 1))
    np.testing.assert_allclose(result.best.w[:2], [path[best], 2.1], rtol=1e-5)
    np.testing.assert_array_equal(result.steps, [best + 4, 5, 60])
    np.testing.assert_allclose(result.model.w[0], path[best + 4], rtol=1e-5)
    np.testing.assert_allclose(result.best_validation[:2], [abs(path[best] - 1), 1.1], rtol=1e-4)
    assert result.best.w[2] == result.model.w[2]


@pytest.mark.parametrize(
    ("models", "key", "message"),
    [
        ({"a": jnp.ones((3, 2)), "b": jnp.ones(2)}, KEY, "models: .*sizes \\[2, 3\\]"),
        ({"a": jnp.ones(())}, KEY, "models: expected the same leading seed axis"),
        ({"a": jnp.ones((3, 2))}, jax.random.split(KEY, 2), "key: expected one key, or 3"),
    ],
)
def test_refuses(models, key, message):
    with pytest.raises(InputError, match=message):
        fit_seeds(models, lambda m, b, k: jnp.sum(m["a"]), None, sgd(1), key=key)


def test_keys_of_the_old_kind_work():
    results = [
        fit_seeds(scalars([0.0, 1.0]), parabola, jnp.float32(2.0), sgd(3), key=key).model.w
        for key in (jax.random.key(5), jax.random.PRNGKey(5))
    ]
    np.testing.assert_array_equal(*results)


class Growth(eqx.Module):
    """dz/dt = rate z², which blows up before t = 1 / (rate z0)."""

    rate: jax.Array

    def __call__(self, t, z, graph):
        return self.rate * z**2


def test_a_seed_whose_equation_cannot_be_solved_is_stopped_alone():
    config = SolveConfig(solver="rk4", dt0=0.1)
    models = eqx.filter_vmap(lambda rate: NeuralGDE(None, Growth(rate), None, config))(jnp.array([0.2, 60.0]))
    graph = Graph.from_edges(np.array([0]), np.array([1]), num_nodes=2)

    def loss(model, graph, key):
        # The exact solution for rate 0.5 and z0 = 1 is 1 / (1 - t / 2).
        return jnp.mean((model(jnp.ones((2, 1)), np.array([0.0, 1.0]), graph)[-1] - 2.0) ** 2)

    with pytest.warns(UserWarning, match="1 finished, 1 diverged; 5 step"):
        result = fit_seeds(models, loss, graph, TrainConfig(steps=100, rate=0.05, max_skipped=5), key=KEY)
    np.testing.assert_allclose(result.model.field.rate, [0.5, 60.0], atol=2e-3)
