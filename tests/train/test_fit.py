"""The loop finds known minima, takes the batches it says, and refuses what it cannot train on."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neuralgde._errors import InputError
from neuralgde.train import TrainConfig, TrainStatus, fit

KEY = jax.random.key(1)


class Weights(eqx.Module):
    w: jax.Array
    fixed: jax.Array


def squares(model, batch, key):
    x, y = batch
    return jnp.mean((x @ model.w - y) ** 2)


def regression(samples=12, features=3):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((samples, features)), rng.standard_normal(samples)
    return (x, y), np.linalg.lstsq(x, y, rcond=None)[0]


def weights(features=3):
    return Weights(jnp.zeros(features), jnp.ones(2))


@pytest.mark.parametrize(
    ("optimiser", "rate", "schedule", "options"),
    [
        ("sgd", 0.3, "constant", {}),
        ("adam", 0.1, "one_cycle", {"peak_step": 50}),
        ("adamw", 0.1, "one_cycle", {}),
        ("rmsprop", 0.03, "cosine_restarts", {"restart_epochs": 1000}),
    ],
)
def test_linear_regression(x64, optimiser, rate, schedule, options):
    data, exact = regression()
    config = TrainConfig(steps=1000, optimiser=optimiser, rate=rate, schedule=schedule, log_every=300, **options)
    result = fit(weights(), squares, data, config, key=KEY)
    np.testing.assert_allclose(result.model.w, exact, atol=1e-6)
    assert result.status == TrainStatus.FINISHED and result.steps == 1000 and result.skipped == 0
    assert result.best is result.model and result.best_validation is None
    # The last event covers the 100 steps that are left.
    np.testing.assert_array_equal(result.history["step"], [300, 600, 900, 1000])
    least = np.mean((data[0] @ exact - data[1]) ** 2)
    assert result.history["loss"][0] > least + 1e-5
    assert result.history["loss"][-1] == pytest.approx(least, abs=1e-8)


def test_l2_decay_is_ridge_and_clip_bounds_a_step(x64):
    (x, y), _ = regression()
    decay = 0.5
    ridge = np.linalg.solve(2 * x.T @ x / len(y) + decay * np.eye(3), 2 * x.T @ y / len(y))
    config = TrainConfig(steps=500, optimiser="sgd", rate=0.2, weight_decay=decay, log_every=500)
    np.testing.assert_allclose(fit(weights(), squares, (x, y), config, key=KEY).model.w, ridge, atol=1e-8)

    config = TrainConfig(steps=1, optimiser="sgd", rate=1.0, clip=1e-3)
    step = fit(weights(), squares, (x, y), config, key=KEY).model.w
    direction = x.T @ y
    np.testing.assert_allclose(step, 1e-3 * direction / np.linalg.norm(direction), rtol=1e-6)


def test_every_epoch_sees_every_sample_once_in_a_new_order():
    # With rate 1 and a loss linear in w, w adds up the samples of a batch; the log shows which they were.
    def loss(model, batch, key):
        number = batch[0].astype(jnp.float32)
        return jnp.sum(model.w) * 0.0 + number, {"number": number}

    data = jnp.arange(6)
    config = TrainConfig(epochs=3, batch_size=1, log_every=1)
    seen = fit(weights(1), loss, data, config, key=KEY).history["number"].reshape(3, 6)
    np.testing.assert_array_equal(np.sort(seen, axis=1), np.tile(np.arange(6), (3, 1)))
    assert not np.array_equal(seen[0], seen[1]) and not np.array_equal(seen[1], seen[2])

    # The order is a matter of the key alone, however the steps are cut into events.
    config = TrainConfig(epochs=3, batch_size=1, log_every=9)
    means = fit(weights(1), loss, data, config, key=KEY).history["number"]
    np.testing.assert_allclose(means, seen.ravel().reshape(2, 9).mean(1), rtol=1e-6)

    config = TrainConfig(epochs=2, batch_size=4, shuffle=False, log_every=1)
    history = fit(
        weights(1), lambda m, b, k: (jnp.sum(m.w), {"last": b[3].astype(float)}), data, config, key=KEY
    ).history
    np.testing.assert_array_equal(history["last"], [3, 3])
    np.testing.assert_array_equal(history["epoch"], [1, 2])


def test_keys_are_fresh_at_every_step():
    def loss(model, batch, key):
        return jnp.sum(model.w**2), {"draw": jax.random.uniform(key)}

    draws = [
        fit(weights(), loss, None, TrainConfig(steps=4, log_every=1), key=jax.random.key(k)).history["draw"]
        for k in (0, 0, 1)
    ]
    assert len(set(draws[0].tolist())) == 4
    np.testing.assert_array_equal(draws[0], draws[1])
    assert not set(draws[0].tolist()) & set(draws[2].tolist())


def test_frozen_arrays_and_arrays_in_the_loss():
    def loss(model, batch, key, *, target):
        return jnp.sum((model.w - target) ** 2) + jnp.sum((model.fixed - 3) ** 2)

    config = TrainConfig(steps=200, rate=0.1, schedule="one_cycle", weight_decay=1e-9)
    partial = eqx.Partial(loss, target=np.full(3, 2.0, np.float32))
    result = fit(weights(), partial, None, config, key=KEY, frozen=lambda m: m.fixed)
    np.testing.assert_array_equal(result.model.fixed, 1.0)
    np.testing.assert_allclose(result.model.w, 2.0, atol=1e-3)


def test_validation_has_its_own_metric_and_names():
    (x, y), _ = regression()
    data = (x.astype(np.float32), y.astype(np.float32))

    def error(model, batch, key):
        return jnp.sum(jnp.abs(model.w)), {"twice": 2 * jnp.sum(jnp.abs(model.w))}

    config = TrainConfig(steps=20, log_every=5)
    result = fit(weights(), squares, data, config, key=KEY, validation=data, metric_fn=error)
    np.testing.assert_allclose(result.history["twice"], 2 * result.history["validation"])
    # It grows from the start, so the first look was the best.
    assert result.best_validation == result.history["validation"][0]
    assert float(error(result.best, None, None)[0]) == result.best_validation < error(result.model, None, None)[0]

    def loss(model, batch, key):
        return squares(model, batch, key), {"size": jnp.sum(model.w)}

    history = fit(weights(), loss, data, config, key=KEY, validation=data).history
    assert {"size", "validation_size"} < set(history)


def scalar(model, batch, key):
    return jnp.sum(model.w**2)


@pytest.mark.parametrize(
    ("message", "change"),
    [
        ("data.*same number of samples.*eqx.Partial", {"data": (np.ones((4, 2)), np.ones(3)), "batch_size": 2}),
        ("data.*same number of samples", {"data": (np.ones(4), np.ones(())), "batch_size": 2}),
        ("data: expected arrays", {"data": None, "batch_size": 2}),
        ("batch_size: expected at most", {"data": np.ones(4), "batch_size": 5}),
        ("loss_fn: expected a floating-point scalar", {"loss_fn": lambda m, b, k: m.w}),
        ("loss_fn: expected a floating-point scalar", {"loss_fn": lambda m, b, k: (jnp.sum(m.w), {"n": m.w})}),
        ("loss_fn: the name 'rate' is taken", {"loss_fn": lambda m, b, k: (jnp.sum(m.w), {"rate": 1 + m.w[0]})}),
        (
            "metric_fn: the name 'rate' is taken",
            {"metric_fn": lambda m, b, k: (m.w[0], {"rate": m.w[0]}), "validation": 1},
        ),
        ("metric_fn: expected scalars", {"metric_fn": lambda m, b, k: m.w, "validation": 1}),
        ("metric_fn.*validation", {"metric_fn": scalar}),
        ("patience.*validation", {"patience": 2}),
        ("model: expected floating-point arrays", {"model": {"n": jnp.arange(3)}}),
        ("peak_step: expected a step before the last", {"schedule": "one_cycle", "peak_step": 3}),
        ("checkpoint_every", {"checkpoint_every": 4}),
    ],
)
def test_refuses(message, change):
    arguments = {"model": weights(), "loss_fn": scalar, "data": None}
    given = {name: change.pop(name) for name in list(change) if name not in TrainConfig.__dataclass_fields__}
    with pytest.raises(InputError, match=message):
        fit(**arguments | given, config=TrainConfig(steps=3, **change), key=KEY)


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("unknown training option 'rat'. Did you mean 'rate'", {"rat": 1.0, "steps": 1}),
        ("unknown optimiser 'adan'. Did you mean 'adam", {"optimiser": "adan", "steps": 1}),
        ("unknown schedule 'one-cycle'. Did you mean 'one_cycle'", {"schedule": "one-cycle", "steps": 1}),
        ("steps, epochs: expected one", {}),
        ("steps, epochs: expected one", {"steps": 1, "epochs": 1}),
        ("steps: expected a whole number", {"steps": 0}),
        ("rate: expected a positive number", {"rate": float("nan"), "steps": 1}),
        ("clip: expected a positive number", {"clip": 0, "steps": 1}),
        ("divergence: expected a positive number", {"divergence": float("inf"), "steps": 1}),
        ("weight_decay: expected a number, 0 or more", {"weight_decay": -1.0, "steps": 1}),
        ("restart_epochs: the schedule 'constant' has no use", {"restart_epochs": 3, "steps": 1}),
        ("restart_epochs: .* needs", {"schedule": "cosine_restarts", "steps": 1}),
    ],
)
def test_config_refuses(message, options):
    with pytest.raises(InputError, match=message):
        TrainConfig.from_dict(options)


def test_config_and_dict_are_the_same():
    config = TrainConfig(epochs=3, batch_size=8, clip=1.0)
    assert TrainConfig.from_dict(config.to_dict()) == config


def test_compiled_once():
    traces = []

    def loss(model, batch, key):
        traces.append(1)
        return squares(model, batch, key)

    (x, y), _ = regression()
    data = (x.astype(np.float32), y.astype(np.float32))
    # Seven events, the last shorter than the others, and a second run that differs in nothing that is compiled.
    config = TrainConfig(steps=20, log_every=3, schedule="one_cycle")
    fit(weights(), loss, data, config, key=KEY)
    assert len(traces) == 2  # one to look at what it returns, one to compile
    fit(weights(), loss, data, dataclasses.replace(config, rate=0.5, steps=30), key=jax.random.key(9))
    assert len(traces) == 3


@pytest.mark.parametrize("start", [0.0, jnp.zeros((), jnp.float32)])
def test_weak_types_are_no_reason_to_compile_again(start):
    """Numbers of Python make arrays of weak types, and the first step makes them strong."""
    traced = []

    def loss(model, batch, key):
        traced.append(model.w.weak_type)
        return squares(model, batch, key)

    data, _ = regression()
    model = Weights(jnp.full(3, start), jnp.ones(2))
    assert model.w.weak_type == isinstance(start, float)
    fit(model, loss, jax.tree.map(np.float32, data), TrainConfig(steps=4, log_every=1), key=KEY, validation=data)
    # For the figures to log, the steps and the look at the validation data.
    assert traced == [False] * 3


def test_a_second_fit_compiles_nothing(caplog):
    (x, y), _ = regression(samples=11)
    config = TrainConfig(steps=2, batch_size=11)
    with jax.log_compiles(True):
        fit(weights(), squares, (x, y), config, key=KEY)
        assert "Compiling" in caplog.text
        caplog.clear()
        fit(weights(), squares, (x, y), config, key=KEY)
    assert "Compiling" not in caplog.text
