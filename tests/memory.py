"""Arrays at chosen places in memory."""

import numpy as np


def aligned(a, dtype):
    """A copy of the kind that a device may go on reading in place: it starts at a multiple of 64 bytes."""
    a = np.asarray(a, dtype)
    room = np.empty(a.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    out = room[start : start + a.nbytes].view(dtype).reshape(a.shape)
    out[:] = a
    return out
