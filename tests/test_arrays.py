"""Arrays on their way to the device."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from memory import aligned
from neuralgde import InputError
from neuralgde._arrays import on_device, row


def test_a_copy_that_no_program_makes(caplog):
    a = aligned(np.arange(37 * 5.0).reshape(37, 5), np.float32)
    with jax.log_compiles(True):
        jax.jit(lambda x: x + 1)(np.ones(43))
        assert "Compiling" in caplog.text  # otherwise the next look would see nothing either
        caplog.clear()
        copy = on_device(a)
    assert "Compiling" not in caplog.text
    a[:] = 0
    np.testing.assert_array_equal(copy, np.arange(37 * 5.0).reshape(37, 5))


@pytest.mark.parametrize(("given", "dtype", "expected"), [(1.5, None, "float32"), ([1, 2], np.int32, "int32")])
def test_precision(given, dtype, expected):
    assert on_device(given, dtype).dtype == expected


def test_masked_arrays_are_refused():
    with pytest.raises(InputError, match="masked array"):
        on_device(np.ma.masked_equal([1.0, 2.0], 2.0))


def test_a_row_of_each():
    tree = {"a": jnp.arange(6.0).reshape(3, 2), "b": (jnp.arange(3),)}
    for k in (0, 2, -1):
        found = row(tree, k)
        np.testing.assert_array_equal(found["a"], tree["a"][k])
        assert found["b"][0] == tree["b"][0][k]
