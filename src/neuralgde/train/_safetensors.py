"""Files of named arrays and JSON in the layout of safetensors, with a checksum: nothing in them can be executed.

The first 8 bytes are the length of a JSON header, which names every array with its type, shape and place in the bytes
that follow. Under `__metadata__` it holds a text of our own, and the SHA-256 of all the rest.
"""

import hashlib
import json
import struct
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._errors import CheckpointError

_TYPES = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(jnp.bfloat16),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("bool"),
}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}


def encode(arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> bytes:
    """The bytes of a file."""
    table, parts, offset = {}, [], 0
    for name, array in arrays.items():
        if array.dtype not in _NAMES:
            raise CheckpointError(f"{name}: arrays of dtype {array.dtype} cannot be stored.")
        data = np.ascontiguousarray(array).tobytes()
        table[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + len(data)],
        }
        parts.append(data)
        offset += len(data)
    buffer = b"".join(parts)
    text = json.dumps(dict(meta), allow_nan=False)
    metadata = {"neuralgde": text, "sha256": _digest(table, text, buffer)}
    header = json.dumps({"__metadata__": metadata, **table}).encode()
    # Readers that map the file into memory want the arrays aligned.
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + buffer


def decode(content: bytes) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the JSON of a file, which is as it was written, or a `ValueError` says how it is not."""
    if len(content) < 8:
        raise ValueError(f"it has {len(content)} bytes, fewer than any checkpoint")
    (length,) = struct.unpack("<Q", content[:8])
    if length > len(content) - 8:
        raise ValueError("it ends before its header does")
    buffer = memoryview(content)[8 + length :]
    try:
        table = json.loads(content[8 : 8 + length])
        metadata = table.pop("__metadata__")
        text, expected = metadata["neuralgde"], metadata["sha256"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError("its header is not that of a checkpoint") from error
    if _digest(table, text, buffer) != expected:
        raise ValueError("its checksum is wrong, so some of it was lost or changed")
    arrays = {}
    for name, entry in table.items():
        begin, end = entry["data_offsets"]
        arrays[name] = np.frombuffer(buffer[begin:end], _TYPES[entry["dtype"]]).reshape(entry["shape"])
    return arrays, json.loads(text)


def _digest(table: dict, text: str, buffer: bytes | memoryview) -> str:
    digest = hashlib.sha256(json.dumps([table, text], sort_keys=True).encode())
    digest.update(buffer)
    return digest.hexdigest()
