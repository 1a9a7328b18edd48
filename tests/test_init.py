"""Importing the package is cheap, and every public name is there."""

import subprocess
import sys

import pytest

import neuralgde


def test_import_loads_no_jax():
    code = (
        "import sys, time; t = time.perf_counter(); import neuralgde; seconds = time.perf_counter() - t;"
        "heavy = {'jax', 'numpy', 'equinox', 'diffrax', 'matplotlib'} & set(sys.modules);"
        "assert not heavy, heavy; assert seconds < 1, seconds"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("name", neuralgde.__all__)
def test_public_name(name):
    assert getattr(neuralgde, name) is not None
    assert name in dir(neuralgde)


def test_unknown_name():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = neuralgde.no_such_name
