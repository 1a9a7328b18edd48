"""What all tests share: JAX's settings, checked types, keys, and a last line about the tests left out."""

import gc
import os
from pathlib import Path

# JAX reads these when it is imported. Tests compile hundreds of small programs, which are worth keeping.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent.parent / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import hypothesis
import jax
import jaxtyping
import pytest

jax.config.update("jax_numpy_dtype_promotion", "strict")
# Shapes and types of every call are checked in the tests, and only here.
jaxtyping.install_import_hook("neuralgde", "checker.check")

# Tracing makes millions of small objects that live long. Looking through them as often as Python does by default takes
# a twentieth of the tests' time.
gc.set_threshold(50_000, 20, 10)

# The first example of a property compiles, so no single one can be held to a deadline.
hypothesis.settings.register_profile("neuralgde", deadline=None, derandomize=True)
hypothesis.settings.load_profile("neuralgde")


# Linux allows a process about 65,000 memory maps. Every compiled program holds some, and past the limit LLVM crashes.
_MAPS = Path("/proc/self/maps")
_MANY_MAPS = 40_000


@pytest.fixture(autouse=True, scope="module")
def _few_memory_maps():
    """Drops the compiled programs between modules once there are many."""
    yield
    if _MAPS.exists() and _MAPS.read_bytes().count(b"\n") > _MANY_MAPS:
        jax.clear_caches()
        # Programs that cycles hold keep their maps until then.
        gc.collect()


@pytest.fixture
def x64():
    """Float64 for the length of one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def optimised():
    """Programs optimised as everybody's are, for the length of one test."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    # Programs that were compiled before would be taken as they are, and those of this test by later ones.
    jax.clear_caches()
    yield
    jax.config.update("jax_disable_most_optimizations", before)
    jax.clear_caches()


@pytest.fixture
def getkey():
    """A function that gives a fresh key at each call, the same ones in every run."""
    key = jax.random.key(0)

    def fresh():
        nonlocal key
        key, out = jax.random.split(key)
        return out

    return fresh


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of the real data sets."""
    folder = os.environ.get("NEURALGDE_DATA")
    if not folder:
        pytest.skip("NEURALGDE_DATA is not set")
    return Path(folder)


# The groups of tests that need more than Python, and what runs them.
GROUPS = {
    "peers": "make test-peers",
    "data": "NEURALGDE_DATA=folder make test-data",
    "full": "NEURALGDE_DATA=folder make test-full",
    "browser": "make test-browser",
}
_left_out = pytest.StashKey[dict[str, int]]()


def pytest_deselected(items):
    if items:
        counts = items[0].config.stash.setdefault(_left_out, {})
        for name in GROUPS:
            found = [item for item in items if item.get_closest_marker(name)]
            if name == "data":
                found = [item for item in found if not item.get_closest_marker("full")]
            counts[name] = counts.get(name, 0) + len(found)


def pytest_sessionfinish(session):
    # With xdist only the workers collect tests: each sends its counts to the process that prints.
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash.get(_left_out, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    # Every worker collects the same tests, so one of them tells all.
    node.config.stash[_left_out] = getattr(node, "workeroutput", {}).get("left_out", {})


def pytest_terminal_summary(terminalreporter, config):
    counts = config.stash.get(_left_out, {})
    parts = [f"{n} {name} ({GROUPS[name]})" for name, n in counts.items() if n]
    if parts:
        terminalreporter.write_line(f"left out: {', '.join(parts)}", yellow=True)
