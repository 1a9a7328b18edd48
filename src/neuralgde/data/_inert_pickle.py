"""Reading pickles as data: nothing that a file names is ever imported or called."""

import io
import math
import pickle
import re
from typing import Any

import numpy as np
import scipy.sparse

from .._errors import InputError

# What Python 2 and 3 call the few things that the arrays, matrices and dictionaries of data sets are made of.
_KINDS = {
    ("numpy", "ndarray"): "class",
    ("numpy", "dtype"): "dtype",
    ("numpy.core.multiarray", "_reconstruct"): "array",
    ("numpy._core.multiarray", "_reconstruct"): "array",
    ("scipy.sparse.csr", "csr_matrix"): "csr",
    ("scipy.sparse._csr", "csr_matrix"): "csr",
    ("collections", "defaultdict"): "dict",
    ("__builtin__", "list"): "class",
    ("builtins", "list"): "class",
    ("_codecs", "encode"): "bytes",
}


class _Inert(dict):
    """Stands for an object of a pickle: its kind, and the arguments and state the pickle has for it."""

    kind = ""
    args: tuple[Any, ...] = ()
    state: Any = None

    def __new__(cls, *args: Any) -> "_Inert":
        self = super().__new__(cls)
        self.args = args
        return self

    def __init__(self, *args: Any):
        super().__init__()

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type[_Inert]:
        kind = _KINDS.get((module, name))
        if kind is None:
            raise InputError(
                f"the pickle asks for {module}.{name}, which data has no use for and which could run code. "
                "The file was refused: get it from its publisher again."
            )
        # A class of its own each time, so that a pickle that changes it changes nothing else.
        return type(name, (_Inert,), {"kind": kind})


def load_pickle(content: bytes, name: str) -> Any:
    """The array, sparse matrix or dictionary of lists that a pickle holds; `name` is what to call it in errors."""
    try:
        return _value(_Unpickler(io.BytesIO(content), encoding="latin1").load())
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    # A damaged pickle can fail in any way at all.
    except Exception as error:
        raise InputError(
            f"{name}: expected a pickle of an array, a sparse matrix or a dictionary, got one that cannot be read "
            f"({type(error).__name__}: {error}). Delete the file and get it again."
        ) from error


def _value(x: Any) -> Any:
    kind = x.kind if isinstance(x, _Inert) else None
    if kind == "array":
        return _array(x)
    if kind == "csr":
        shape = x.state.get("_shape", x.state.get("shape"))
        parts = tuple(_array(x.state[part]) for part in ("data", "indices", "indptr"))
        matrix = scipy.sparse.csr_array(parts, shape=tuple(int(n) for n in shape))
        matrix.check_format(full_check=True)
        return matrix
    if kind == "dict" or type(x) is dict:
        return {key: value for key, value in x.items()}
    raise ValueError(f"found {type(x).__name__}")


def _array(x: _Inert) -> np.ndarray:
    _, shape, dtype, fortran_order, raw = x.state
    if isinstance(raw, _Inert) and raw.kind == "bytes":
        raw = raw.args[0]
    raw = raw.encode("latin1") if isinstance(raw, str) else bytes(raw)
    code = str(dtype.args[0])
    if dtype.kind != "dtype" or not re.fullmatch(r"b1|[iu][1248]|f[248]", code):
        raise ValueError(f"found an array of dtype {code}")
    byte_order = dtype.state[1] if dtype.state[1] in "<>" else "="
    flat = np.frombuffer(raw, np.dtype(code).newbyteorder(byte_order))
    if flat.size != math.prod(shape):
        raise ValueError(f"found {flat.size} numbers for an array of shape {shape}")
    return flat.reshape(shape, order="F" if fortran_order else "C").astype(np.dtype(code))
