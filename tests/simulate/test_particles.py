"""The particle system against its formulas and its physics."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuralgde as gde
from neuralgde.simulate import ParticleSystem, simulate_particles


def formula(z, alpha, beta, r):
    """The appendix, pair by pair, with the sum added."""
    x, v = z[:, :2], z[:, 2:]
    out = np.concatenate([v, -x], axis=1)
    for i in range(len(z)):
        for j in range(len(z)):
            d = np.linalg.norm(x[i] - x[j])
            if i != j and 2 * d <= r:
                n = (x[i] - x[j]) / d
                out[i, 2:] += -(alpha * (d - r) + beta * (v[i] - v[j]) @ (x[i] - x[j]) / d) * n
    return out


@pytest.mark.usefixtures("x64")
def test_field_is_the_formula():
    z = np.random.default_rng(0).normal(size=(10, 4)) * 0.5
    system = ParticleSystem(alpha=1.3, beta=0.4, radius=1.1)
    assert system.adjacency(jnp.asarray(z)).sum() >= 8
    np.testing.assert_allclose(system(0.0, jnp.asarray(z)), formula(z, 1.3, 0.4, 1.1), rtol=1e-12)
    free = np.concatenate([z[:, 2:], -z[:, :2]], axis=1)
    no_drag = ParticleSystem(alpha=1.3, beta=0.0, radius=1.1)
    np.testing.assert_allclose(no_drag(0.0, jnp.asarray(z)), formula(z, 1.3, 0.0, 1.1), rtol=1e-12)
    paper = ParticleSystem(alpha=1.3, beta=0.4, radius=1.1, sign="paper")
    np.testing.assert_allclose(paper(0.0, jnp.asarray(z)), 2 * free - formula(z, 1.3, 0.4, 1.1), rtol=1e-12)


@pytest.mark.usefixtures("x64")
def test_a_free_particle_circles():
    run = simulate_particles(particles=1, duration=2.0, dt=0.01, key=jax.random.key(0))
    x0, v0 = np.split(np.asarray(run.states[0, 0, 0]), 2)
    exact = np.concatenate([x0 * np.cos(2) + v0 * np.sin(2), v0 * np.cos(2) - x0 * np.sin(2)])
    np.testing.assert_allclose(run.states[0, -1, 0], exact, atol=1e-8)


@pytest.mark.usefixtures("x64")
def test_energy_falls_and_only_with_the_signs_of_springs():
    run = simulate_particles(runs=8, key=jax.random.key(1))
    energy = np.asarray(run.system.energy(run.states[0]))
    all_energy = np.stack([run.system.energy(s) for s in run.states])
    assert (all_energy[:, -1] < 0.9 * all_energy[:, 0]).all()
    # The step across the edge of a pair's reach costs a little accuracy; otherwise it falls at every step.
    assert np.diff(energy).max() < 1e-3 * energy[0]
    wrong = simulate_particles(ParticleSystem(sign="paper"), runs=8, key=jax.random.key(1))
    gained = [float(wrong.system.energy(s)[-1] / wrong.system.energy(s)[0]) for s in wrong.states]
    assert np.mean(np.array(gained) > 1) > 0.5


def test_adjacency_is_that_of_the_graph():
    run = simulate_particles(duration=0.1, key=jax.random.key(2))
    z = run.states[0, -1]
    np.testing.assert_array_equal(run.system.adjacency(z), run.system.graph(z).to_dense() > 0)
    np.testing.assert_array_equal(run.system.adjacency(run.states[0])[-1], run.system.adjacency(z))


def test_runs_repeat_by_key():
    a, b, c = (simulate_particles(duration=0.05, key=jax.random.key(k)).states for k in (3, 3, 4))
    np.testing.assert_array_equal(a, b)
    assert not np.allclose(a, c)


def test_gradients_are_finite_where_particles_coincide():
    z = jnp.zeros((3, 4))
    assert np.isfinite(jax.grad(lambda z: jnp.sum(ParticleSystem()(0.0, z) ** 2))(z)).all()


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: ParticleSystem(alpha=-1.0), "alpha"),
        (lambda: ParticleSystem(sign="papr"), "sign"),
        (lambda: simulate_particles(runs=0, key=jax.random.key(0)), "runs"),
        (lambda: simulate_particles(dt=0.0, key=jax.random.key(0)), "dt"),
    ],
)
def test_bad_input(call, name):
    with pytest.raises(gde.InputError, match=name):
        call()
