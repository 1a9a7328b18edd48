"""A small training run, and the points at which it can be made to kill itself."""

import os
import signal
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from neuralgde.train import TrainConfig, fit_seeds

# Events come every 4 steps, saves every 8, the last event is at step 42.
CONFIG = TrainConfig(
    epochs=6, batch_size=3, rate=0.05, schedule="cosine_restarts", restart_epochs=4, clip=1.0, log_every=4, patience=8
)


def make(key):
    return eqx.nn.MLP(2, 1, 3, 1, activation=jax.nn.tanh, key=key)


def loss(model, batch, key):
    x, y = batch
    noise = 0.05 * jax.random.normal(key, x.shape)
    return jnp.mean((jax.vmap(model)(x + noise) - y) ** 2), {"noise": jnp.mean(noise)}


def train(folder, config=CONFIG, seed=5, make=make, scale=1.0):
    x, y = np.split(np.random.default_rng(0).standard_normal((21, 3)).astype(np.float32), [2], axis=1)
    return fit_seeds(
        eqx.filter_vmap(make)(jax.random.split(jax.random.key(0), 2)),
        loss,
        (scale * x, y),
        config,
        key=jax.random.key(seed),
        validation=(x[:5], y[:5]),
        checkpoint=Path(folder) / "run.ckpt",
        checkpoint_every=8,
        log=Path(folder) / "run.jsonl",
    )


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def at_event(number, torn=False):
    """Die as an event is logged, with half of its line in the file if torn."""
    from neuralgde.train._log import History

    add, events = History.add, []

    def dying(self, event):
        events.append(event)
        if len(events) == number:
            if torn:
                self._file.write('{"step": 1')
                self._file.flush()
            die()
        add(self, event)

    History.add = dying


def in_write(number):
    """Die in the middle of writing a checkpoint's bytes."""
    from neuralgde.train import _checkpoint

    encode, saves = _checkpoint.encode, []

    class Torn(bytes):
        pass

    class File:
        def __init__(self, file):
            self.file = file

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()

        def write(self, content):
            if isinstance(content, Torn):
                self.file.write(content[: len(content) // 2])
                self.file.flush()
                die()
            return self.file.write(content)

        def __getattr__(self, name):
            return getattr(self.file, name)

    class TearingPath(type(Path())):
        def open(self, *args, **options):
            return File(super().open(*args, **options))

    def torn(*args):
        saves.append(1)
        content = encode(*args)
        return Torn(content) if len(saves) == number else content

    _checkpoint.encode = torn
    _checkpoint.Path = TearingPath


def before_replace(source, number):
    """Die before a rename: of the new file to its place, or of the old one's second name."""
    replace, calls = os.replace, []

    def dying(a, b):
        if str(a).endswith("run.ckpt" + source):
            calls.append(a)
            if len(calls) == number:
                die()
        replace(a, b)

    os.replace = dying


# What arranges for the death, and the step of the checkpoint that is left.
POINTS = {
    "before any save": (lambda: at_event(1), None),
    "between saves, in a line of the log": (lambda: at_event(7, torn=True), 24),
    "in the write of the first save": (lambda: in_write(1), None),
    "in the write of a later save": (lambda: in_write(3), 16),
    "before the new file is moved": (lambda: before_replace(".part", 3), 16),
    "before the old file is kept": (lambda: before_replace(".spare", 2), 16),
    "at the last save": (lambda: before_replace(".part", 6), 40),
}


def train_until(point, folder):
    POINTS[point][0]()
    train(folder)
