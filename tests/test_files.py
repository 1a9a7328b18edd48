"""Files are written whole or not at all, whoever writes them."""

import jax.numpy as jnp
import numpy as np
import pytest

from neuralgde import InputError
from neuralgde._files import replace_file
from neuralgde.simulate import (
    FreewayRun,
    ParticleRun,
    ParticleSystem,
    ReactionRun,
    freeway_network,
    repressilator,
    write_freeway,
    write_particles,
    write_reactions,
)


def test_an_old_file_stays_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "new" / "file.txt"
    assert replace_file(path, lambda file: file.write(b"old")) == path

    def broken(file):
        file.write(b"ne")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replace_file(path, broken)
    assert path.read_text() == "old" and [p.name for p in path.parent.iterdir()] == ["file.txt"]


def freeway():
    network, day = freeway_network(1, miles=2.0, seed=0), np.array(["2024-01-01"], "datetime64[D]")
    sensors, cells = np.ones((288, len(network.sensors))), np.ones((288, len(network.capacity)))
    return FreewayRun(network, day, sensors, sensors, cells, cells, ())


TIMES = jnp.array([0.0, 0.1, 12345.678])
RUNS = {
    "freeway": (write_freeway, freeway),
    "particles": (write_particles, lambda: ParticleRun(TIMES, jnp.ones((2, 3, 2, 4)), ParticleSystem())),
    "reactions": (
        write_reactions,
        lambda: ReactionRun(TIMES, jnp.ones((2, 3, 6)), jnp.ones(2, int), repressilator()),
    ),
}


@pytest.mark.parametrize(
    "kind, suffix",
    [("freeway", ".csv"), ("particles", ".csv"), ("particles", ".npz"), ("reactions", ".csv"), ("reactions", ".npz")],
)
def test_simulations_leave_what_was_there_until_they_are_whole(kind, suffix, tmp_path, monkeypatch):
    write, make = RUNS[kind]
    path = tmp_path / f"run{suffix}"
    path.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(InputError, match="cannot be written: No space"):
        patch.setattr("os.replace", full)
        write(make(), path)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    write(make(), path)
    assert path.stat().st_size > 100


@pytest.mark.parametrize("kind", ["particles", "reactions"])
def test_times_can_be_read_again_as_they_were(kind, tmp_path):
    write, make = RUNS[kind]
    write(make(), tmp_path / "run.csv")
    rows = [line.split(",") for line in (tmp_path / "run.csv").read_text().splitlines()[1:]]
    shown = list(dict.fromkeys(row[1] for row in rows))
    assert shown == ["0", "0.1", "12345.678"]
    np.testing.assert_array_equal(np.array(shown, TIMES.dtype), TIMES)
    assert {row[0] for row in rows} == {"0", "1"} and set(rows[0][2:]) <= {"0", "1"}
