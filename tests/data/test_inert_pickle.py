"""Pickles are read as data, and whatever else they ask for is refused."""

import collections
import os
import pickle

import numpy as np
import pytest
import scipy.sparse

from neuralgde import InputError
from neuralgde.data._inert_pickle import _Inert, load_pickle

ARRAYS = [
    np.arange(6, dtype=np.int32).reshape(2, 3),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.array([1.5, -2.0], dtype=">f4"),
    np.array([[True], [False]]),
    np.array(7, dtype=np.uint8),
]
# An array of Python 2: protocol 2, the numbers 1 and 258 as little-endian int16 in a byte string.
PYTHON_2 = (
    b"\x80\x02cnumpy.core.multiarray\n_reconstruct\nq\x01cnumpy\nndarray\nq\x02K\x00\x85U\x01b\x87Rq\x03(K\x01K\x02\x85"
    b"cnumpy\ndtype\nq\x04U\x02i2K\x00K\x01\x87Rq\x05(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
    b"U\x04\x01\x00\x02\x01tb."
)


class Calls:
    """Pickles to a call of any function."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: a.dtype.str)
def test_arrays(array, protocol):
    out = load_pickle(pickle.dumps(array, protocol), "a")
    assert out.dtype == array.dtype.newbyteorder("=") and out.flags.writeable
    np.testing.assert_array_equal(out, array)


def test_array_of_python_2():
    out = load_pickle(PYTHON_2, "a")
    assert out.dtype == np.int16
    np.testing.assert_array_equal(out, [1, 258])


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_sparse_matrix(protocol):
    matrix = scipy.sparse.random(5, 4, 0.4, format="csr", random_state=0, dtype=np.float32)
    out = load_pickle(pickle.dumps(scipy.sparse.csr_matrix(matrix), protocol), "a")
    assert out.dtype == np.float32
    np.testing.assert_array_equal(out.toarray(), matrix.toarray())


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_dictionary(protocol):
    graph = collections.defaultdict(list, {0: [1, 2], 2: [], 5: [0]})
    out = load_pickle(pickle.dumps(graph, protocol), "a")
    assert type(out) is dict and out == dict(graph)


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize(
    "function, name",
    [(os.system, r"(posix|nt)\.system"), (eval, r"(__builtin__|builtins)\.eval"), (np.load, r"numpy\.load")],
)
def test_other_globals_are_refused(function, name, protocol, tmp_path):
    mark = tmp_path / "mark"
    command = f"open({str(mark)!r}, 'w')" if function is eval else f"touch {mark}"
    with pytest.raises(InputError, match=rf"^ind\.cora\.x: the pickle asks for {name},"):
        load_pickle(pickle.dumps({"innocent": [Calls(function, command)]}, protocol), "ind.cora.x")
    assert not mark.exists()


@pytest.mark.parametrize(
    "content, name",
    [
        (b"cos\nsystem\n(S'true'\ntR.", "os.system"),
        (b"(S'true'\nios\nsystem\n.", "os.system"),
        (b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93.", "numpy.ndarray.tofile"),
        (b"\x80\x04\x8c\x0bcollections\x8c\x0f_sys.modules.os\x93.", "collections._sys.modules.os"),
        (b"cnumpy.testing\nrundocs\n.", "numpy.testing.rundocs"),
    ],
    ids=["GLOBAL", "INST", "dotted", "through a module", "of numpy"],
)
def test_refused_however_it_is_asked_for(content, name):
    with pytest.raises(InputError, match=f"the pickle asks for {name},"):
        load_pickle(content, "a")


def test_a_pickle_cannot_change_what_stands_for_its_classes():
    # BUILD on the class itself, with attributes to set on it.
    changed = b"\x80\x02cnumpy\ndtype\nN}U\x04kindU\x04evils\x86b."
    with pytest.raises(InputError, match="cannot be read"):
        load_pickle(changed, "a")
    assert _Inert.kind == ""
    np.testing.assert_array_equal(load_pickle(PYTHON_2, "a"), [1, 258])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a pickle",
        PYTHON_2[:-20],
        PYTHON_2.replace(b"i2", b"O8"),
        PYTHON_2.replace(b"K\x02\x85cnumpy", b"K\x03\x85cnumpy"),
        pickle.dumps([1, 2], 2),
        pickle.dumps(np.array([[1], [None]]), 2),
        pickle.dumps(np.array(["text"]), 2),
        b"\x80\x02cscipy.sparse.csr\ncsr_matrix\n)\x81}U\x06_shapeK\x02K\x02\x86sb.",
    ],
    ids=["empty", "text", "cut off", "objects", "shape", "list", "object array", "strings", "no arrays"],
)
def test_damaged_pickles(content):
    with pytest.raises(InputError, match=r"^ind\.cora\.x: expected a pickle of an array.*get it again"):
        load_pickle(content, "ind.cora.x")


def test_sparse_indices_out_of_range():
    matrix = scipy.sparse.csr_matrix(np.eye(3))
    matrix.indices[1] = 9
    with pytest.raises(InputError, match="cannot be read"):
        load_pickle(pickle.dumps(matrix, 2), "a")
