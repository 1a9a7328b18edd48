"""The particle system against its formulas and its physics."""

import equinox as eqx
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

    @jax.jit
    def fields(z):
        system = ParticleSystem(alpha=1.3, beta=0.4, radius=1.1)
        no_drag = ParticleSystem(alpha=1.3, beta=0.0, radius=1.1)
        paper = ParticleSystem(alpha=1.3, beta=0.4, radius=1.1, sign="paper")
        return system.adjacency(z), system(0.0, z), no_drag(0.0, z), paper(0.0, z)

    near, ours, no_drag, paper = fields(z)
    assert np.sum(near) >= 8
    np.testing.assert_allclose(ours, formula(z, 1.3, 0.4, 1.1), rtol=1e-12)
    np.testing.assert_allclose(no_drag, formula(z, 1.3, 0.0, 1.1), rtol=1e-12)
    free = np.concatenate([z[:, 2:], -z[:, :2]], axis=1)
    np.testing.assert_allclose(paper, 2 * free - formula(z, 1.3, 0.4, 1.1), rtol=1e-12)


@pytest.mark.usefixtures("x64")
def test_a_free_particle_circles():
    run = simulate_particles(particles=1, duration=2.0, dt=0.01, key=jax.random.key(0))
    states = np.asarray(run.states)
    x0, v0 = np.split(states[0, 0, 0], 2)
    exact = np.concatenate([x0 * np.cos(2) + v0 * np.sin(2), v0 * np.cos(2) - x0 * np.sin(2)])
    np.testing.assert_allclose(states[0, -1, 0], exact, atol=1e-8)


@pytest.mark.usefixtures("x64")
def test_energy_falls_and_only_with_the_signs_of_springs():
    energies = eqx.filter_jit(lambda run: jax.lax.map(run.system.energy, run.states))
    energy = np.asarray(energies(simulate_particles(runs=8, key=jax.random.key(1))))
    assert (energy[:, -1] < 0.9 * energy[:, 0]).all()
    # The step across the edge of a pair's reach costs a little accuracy; otherwise it falls at every step.
    assert np.diff(energy[0]).max() < 1e-3 * energy[0, 0]
    wrong = simulate_particles(ParticleSystem(sign="paper"), runs=8, key=jax.random.key(1))
    energy = np.asarray(energies(wrong))
    assert np.mean(energy[:, -1] > energy[:, 0]) > 0.5


def test_adjacency_is_that_of_the_graph():
    run = simulate_particles(duration=0.1, key=jax.random.key(2))

    @eqx.filter_jit
    def adjacencies(run):
        z = run.states[0, -1]
        return run.system.adjacency(z), run.system.graph(z).to_dense() > 0, run.system.adjacency(run.states[0])[-1]

    alone, of_the_graph, last = adjacencies(run)
    np.testing.assert_array_equal(alone, of_the_graph)
    np.testing.assert_array_equal(alone, last)


def test_runs_repeat_by_key():
    a, b, c = (simulate_particles(duration=0.05, key=jax.random.key(k)).states for k in (3, 3, 4))
    np.testing.assert_array_equal(a, b)
    assert not np.allclose(a, c)


def test_gradients_are_finite_where_particles_coincide():
    gradient = jax.jit(jax.grad(lambda z: jnp.sum(ParticleSystem()(0.0, z) ** 2)))
    assert np.isfinite(gradient(np.zeros((3, 4), np.float32))).all()


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
