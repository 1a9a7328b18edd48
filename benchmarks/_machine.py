"""The machine: what it is, and its limits, measured on the spot."""

import importlib.metadata
import importlib.util
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

PACKAGES = (
    "neuralgde", "jax", "jaxlib", "equinox", "diffrax", "numpy", "scipy", "torch", "torchdiffeq", "torchode",
    "torchdyn", "torch_geometric", "gillespy2",
)  # fmt: skip


@dataclass(frozen=True)
class Machine:
    """Limits that no contender can pass: float32 products per second, and bytes copied per second."""

    gemm_rate: float
    bandwidth: float
    cores: int
    description: str
    versions: dict[str, str]


def measure(quick: bool = False) -> Machine:
    """The best of several tries and libraries: a busy machine can only make a limit look lower than it is."""
    import jax
    import jax.numpy as jnp

    n = 512 if quick else 2048
    a = jnp.asarray(np.random.default_rng(0).standard_normal((n, n)), jnp.float32)
    product = jax.jit(jnp.matmul)
    gemm = 2 * n**3 / _fastest(lambda: product(a, a).block_until_ready())

    size = 2**26 if quick else 2**28
    x = jnp.ones(size // 4, jnp.float32)
    copy = jax.jit(lambda x: x + 1.0)
    # Read once and written once.
    bandwidth = 2 * size / _fastest(lambda: copy(x).block_until_ready())
    source, target = np.ones(size // 4, np.float32), np.ones(size // 4, np.float32)
    bandwidth = max(bandwidth, 2 * size / _fastest(lambda: np.copyto(target, source)))
    if importlib.util.find_spec("torch"):
        import torch

        b = torch.tensor(np.asarray(a))
        gemm = max(gemm, 2 * n**3 / _fastest(lambda: b @ b))
    return Machine(gemm, bandwidth, cores(), _description(), versions())


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def versions() -> dict[str, str]:
    out = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            out[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return out


def _fastest(run, tries: int = 7) -> float:
    run()
    taken = []
    for _ in range(tries):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return min(taken)


def _description() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor() or platform.machine()}, {platform.system()}"
