"""No test here touches the user's cache, and only those marked `data` see the user's data."""

import pytest


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch, request):
    """A cache that is empty and, unless a test is on real data, no folder of data sets."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    if request.node.get_closest_marker("data") is None:
        monkeypatch.delenv("NEURALGDE_DATA", raising=False)
