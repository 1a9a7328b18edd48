"""Downloads from files and from a server on this machine: whole and right, or not there at all."""

import contextlib
import hashlib
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from neuralgde import InputError
from neuralgde.data import DataError, cache_dir, fetch, find

CONTENT = b"three days of traffic\n" * 10_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/missing":
            self.send_error(404)
            return
        self.server.requests.append(self.path)
        self.send_response(200)
        if self.path != "/unannounced":
            self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(CONTENT[:-1000] if self.path == "/cut" else CONTENT)

    def log_message(self, format, *args):
        pass


@pytest.fixture
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.requests = []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    server.url = f"http://127.0.0.1:{server.server_port}"
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def git_blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def test_git_blob_ids_are_those_of_git():
    # `git hash-object` of an empty file and of one that holds "hello\n".
    assert git_blob(b"") == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    assert git_blob(b"hello\n") == "ce013625030ba8dba906f756967f9e9ca394464a"


@pytest.mark.parametrize("sums", [{"sha256": SHA256}, {"git_blob": git_blob(CONTENT)}, {"sha256": SHA256.upper()}])
@pytest.mark.parametrize("page", ["whole", "unannounced"])
def test_download(server, sums, page):
    path = fetch(f"{server.url}/{page}", "traffic/speed.csv", **sums)
    assert path == cache_dir() / "traffic/speed.csv" == find("traffic/speed.csv")
    assert path.read_bytes() == CONTENT
    assert files(cache_dir()) == ["traffic/speed.csv"]


def test_download_from_a_file(tmp_path):
    source = tmp_path / "source"
    source.write_bytes(CONTENT)
    path = fetch(source.as_uri(), tmp_path / "elsewhere" / "copy", sha256=SHA256, git_blob=git_blob(CONTENT))
    assert path == tmp_path / "elsewhere" / "copy"
    assert path.read_bytes() == CONTENT


def test_progress_counts_the_bytes(server):
    seen = []
    fetch(f"{server.url}/whole", "a", sha256=SHA256, progress=lambda done, total: seen.append((done, total)))
    assert len(seen) > 1 and seen == sorted(seen)
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    seen.clear()
    fetch(f"{server.url}/unannounced", "b", sha256=SHA256, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (len(CONTENT), None)


def test_a_right_file_is_not_fetched_again_and_a_wrong_one_is(server):
    path = fetch(f"{server.url}/whole", "a", sha256=SHA256)
    assert fetch(f"{server.url}/whole", "a", sha256=SHA256) == path
    assert server.requests == ["/whole"]
    path.write_bytes(CONTENT[:50])
    assert fetch(f"{server.url}/whole", "a", sha256=SHA256).read_bytes() == CONTENT
    assert server.requests == ["/whole", "/whole"]


@pytest.mark.parametrize(
    "page, sums, message",
    [
        ("whole", {"sha256": "0" * 64}, r"its SHA-256 is [0-9a-f]{64}, expected 0{64}"),
        ("whole", {"git_blob": "0" * 40}, r"its git blob id is [0-9a-f]{40}, expected 0{40}"),
        ("whole", {"sha256": SHA256, "git_blob": "0" * 40}, "its git blob id is"),
        ("cut", {"sha256": SHA256}, f"the connection ended after {len(CONTENT) - 1000} of {len(CONTENT)} bytes"),
        ("missing", {"sha256": SHA256}, "404"),
    ],
    ids=["sha256", "git blob", "one of two", "cut off", "missing"],
)
def test_what_is_not_right_is_not_kept(server, page, sums, message):
    with pytest.raises(DataError, match=message):
        fetch(f"{server.url}/{page}", "a", **sums)
    assert files(cache_dir()) == []
    # Nor does it replace what was there.
    (cache_dir() / "a").write_bytes(b"older")
    with pytest.raises(DataError, match=message):
        fetch(f"{server.url}/{page}", "a", **sums)
    assert files(cache_dir()) == ["a"]
    assert (cache_dir() / "a").read_bytes() == b"older"


def test_no_network_says_what_to_do(server):
    server.shutdown()
    server.server_close()
    with pytest.raises(DataError, match="NEURALGDE_DATA") as caught:
        fetch(f"{server.url}/whole", "a", sha256=SHA256)
    assert str(cache_dir() / "a") in str(caught.value)
    assert server.url in str(caught.value)


def test_missing_file_address(tmp_path):
    with pytest.raises(DataError, match="cannot download"):
        fetch((tmp_path / "nothing").as_uri(), "a", sha256=SHA256)


def test_an_interrupt_leaves_nothing(server):
    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(f"{server.url}/whole", "a", sha256=SHA256, progress=stop)
    assert files(cache_dir()) == []


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "source").write_bytes(CONTENT)
    (tmp_path / "cache").write_text("a file where the cache should be")
    with pytest.raises(DataError, match="cannot write .*XDG_CACHE_HOME"):
        fetch((tmp_path / "source").as_uri(), "a", sha256=SHA256)


@pytest.mark.parametrize(
    "url, sums, message",
    [
        ("https://example.org/a", {}, "sha256, git_blob: expected one of them"),
        ("ftp://example.org/a", {"sha256": SHA256}, "url: expected an address that starts with https:"),
        ("a", {"sha256": SHA256}, "url: expected an address that starts with https:"),
    ],
)
def test_bad_input(url, sums, message):
    with pytest.raises(InputError, match=message):
        fetch(url, "a", **sums)


def test_cache_dir(monkeypatch, tmp_path):
    assert cache_dir() == tmp_path / "cache" / "neuralgde"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", os.fspath(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "neuralgde"


def test_find_looks_in_the_folder_of_data_first(monkeypatch, tmp_path):
    assert find("set/a") is None
    for folder in (cache_dir(), tmp_path / "data"):
        (folder / "set").mkdir(parents=True)
        (folder / "set" / "a").touch()
    (cache_dir() / "set" / "b").touch()
    assert find("set/a") == cache_dir() / "set" / "a"
    monkeypatch.setenv("NEURALGDE_DATA", str(tmp_path / "data"))
    assert find("set/a") == tmp_path / "data" / "set" / "a"
    assert find("set/b") == cache_dir() / "set" / "b"
    assert find("set") is None
    monkeypatch.setenv("NEURALGDE_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="NEURALGDE_DATA: expected a folder"):
        find("set/a")
