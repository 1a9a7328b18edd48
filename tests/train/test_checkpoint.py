"""Checkpoint files: what goes in comes out, bit for bit, and what is damaged or foreign is told."""

import json
import os
import struct

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neuralgde import CheckpointError
from neuralgde.train import read_checkpoint, save_checkpoint

META = {"config": {"rate": 0.1}, "step": 7}


def tree():
    return {
        "layers": [eqx.nn.Linear(2, 3, key=jax.random.key(0)), None],
        "count": jnp.asarray(3),
        "flags": jnp.array([True, False]),
        "half": jnp.array([1.5, -2.0], jnp.bfloat16),
        "key": jax.random.split(jax.random.key(1), 2),
        "empty": jnp.zeros((0, 2)),
        "odd": jnp.array([jnp.nan, jnp.inf, -0.0]),
        "activation": jax.nn.tanh,
    }


def blank():
    return jax.tree.map(lambda leaf: jax.tree.map(jnp.zeros_like, leaf) if eqx.is_array(leaf) else leaf, tree())


def bits(x):
    x = jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
    return np.asarray(x).tobytes()


def same(a, b):
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(x.dtype == y.dtype and bits(x) == bits(y) if eqx.is_array(x) else x is y for x, y in pairs)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "run.ckpt"


def test_round_trip(path):
    save_checkpoint(path, {"tree": tree(), "history": {"loss": np.arange(3.0)}}, META)
    found = read_checkpoint(path)
    assert not same(blank(), tree()) and same(found.restore("tree", blank()), tree())
    np.testing.assert_array_equal(found.group("history")["loss"], np.arange(3.0))
    assert META.items() <= found.meta.items() and found.meta["format"] == 1 and "jax" in found.meta["versions"]
    assert os.listdir(path.parent) == ["run.ckpt"]


def test_float64(path, x64):
    values = {"a": jnp.array([1 / 3, 2**-40])}
    save_checkpoint(path, {"tree": values}, {})
    assert same(read_checkpoint(path).restore("tree", {"a": jnp.zeros(2)}), values)


def test_layout_is_that_of_safetensors(path):
    save_checkpoint(path, {"tree": {"a": jnp.arange(6.0).reshape(2, 3), "b": jnp.arange(2)}}, META)
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    assert (8 + length) % 8 == 0
    assert header["tree['a']"] == {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
    assert header["tree['b']"] == {"dtype": "I32", "shape": [2], "data_offsets": [24, 32]}
    assert all(isinstance(value, str) for value in header["__metadata__"].values())
    np.testing.assert_array_equal(np.frombuffer(content[8 + length :][:24], "<f4"), np.arange(6))
    assert len(content) == 8 + length + 32


def test_the_one_before_is_kept(path):
    for step in range(3):
        save_checkpoint(path, {"tree": {"a": jnp.asarray(step)}}, {"step": step})
    assert sorted(os.listdir(path.parent)) == ["run.ckpt", "run.ckpt.prev"]
    assert read_checkpoint(path).meta["step"] == 2
    assert read_checkpoint(path.with_name("run.ckpt.prev")).meta["step"] == 1


def test_the_one_before_is_kept_without_links(path, monkeypatch):
    def refuse(*_):
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    for step in range(2):
        save_checkpoint(path, {"tree": {"a": jnp.asarray(step)}}, {"step": step})
    assert read_checkpoint(path.with_name("run.ckpt.prev")).meta["step"] == 0
    assert sorted(os.listdir(path.parent)) == ["run.ckpt", "run.ckpt.prev"]


def flip(at):
    def change(content):
        at_byte = at if at >= 0 else len(content) + at
        return content[:at_byte] + bytes([content[at_byte] ^ 1]) + content[at_byte + 1 :]

    return change


DAMAGES = {
    "empty": lambda content: b"",
    "cut in the length": lambda content: content[:5],
    "cut in the header": lambda content: content[:60],
    "cut in the arrays": lambda content: content[:-1],
    "longer": lambda content: content + b"\0",
    "changed length": flip(0),
    "changed header": lambda content: content.replace(b'"F32"', b'"I32"', 1),
    "changed name": lambda content: content.replace(b"tree['a']", b"tree['b']", 1),
    "changed config": lambda content: content.replace(b"0.1", b"0.2", 1),
    "changed arrays": flip(-1),
    "another file": lambda content: b'{"a": 1}' * 20,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_seen(path, damage):
    save_checkpoint(path, {"tree": {"a": jnp.ones(3)}}, META | {"step": 1})
    content = path.read_bytes()
    damaged = DAMAGES[damage](content)
    assert damaged != content
    path.write_bytes(damaged)
    with pytest.raises(CheckpointError, match="run.ckpt is damaged.*no whole one before"):
        read_checkpoint(path)

    path.write_bytes(content)
    save_checkpoint(path, {"tree": {"a": 2 * jnp.ones(3)}}, META | {"step": 2})
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    with pytest.warns(UserWarning, match="run.ckpt.prev is used instead"):
        found = read_checkpoint(path)
    assert found.meta["step"] == 1 and found.path.name == "run.ckpt.prev"


@pytest.mark.parametrize(
    ("like", "message"),
    [
        ({"a": jnp.ones(4)}, r"tree\['a'\] has shape \(3,\) and dtype float32, expected \(4,\)"),
        ({"a": jnp.arange(3)}, r"tree\['a'\] has .* expected \(3,\) and int32"),
        ({"a": jnp.ones(3), "b": jnp.ones(3)}, r"does not hold tree\['b'\]"),
        ({}, r"holds tree\['a'\], which is not"),
    ],
)
def test_another_structure_is_refused(path, like, message):
    save_checkpoint(path, {"tree": {"a": jnp.ones(3)}, "treelike": {"c": jnp.ones(1)}}, {})
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(path).restore("tree", like)


def test_other_failures(path, tmp_path):
    with pytest.raises(CheckpointError, match="cannot read the checkpoint .*run.ckpt"):
        read_checkpoint(path)
    save_checkpoint(path, {}, {"format": 2, "versions": {"neuralgde": "9.9"}})
    with pytest.raises(CheckpointError, match="format 2.*reads format 1.*neuralgde 9.9"):
        read_checkpoint(path)
    with pytest.raises(CheckpointError, match="complex64 cannot be stored"):
        save_checkpoint(path, {"tree": jnp.ones(2, jnp.complex64)}, {})
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="cannot write the checkpoint"):
        save_checkpoint(tmp_path / "file" / "run.ckpt", {}, {})
