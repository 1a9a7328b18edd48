"""Verified download: a file arrives whole and as it was published, or not at all."""

import contextlib
import hashlib
import http.client
import os
import secrets
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from .._errors import InputError

# Called with the bytes that have come and, where the publisher tells it, how many there are.
Progress = Callable[[int, int | None], None]

_CHUNK = 1 << 16
_TIMEOUT_SECONDS = 30.0


class DataError(RuntimeError):
    """A data set could not be had: there is no copy of it and no network, or what came is not what was published."""


def cache_dir() -> Path:
    """The folder that downloads go to: `$XDG_CACHE_HOME/neuralgde`, by default `~/.cache/neuralgde`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "neuralgde"


def data_folders() -> list[Path]:
    """Where data sets are looked for: the folder `$NEURALGDE_DATA`, if it is set, then the cache."""
    folders = [cache_dir()]
    if given := os.environ.get("NEURALGDE_DATA"):
        if not Path(given).is_dir():
            raise InputError(f"NEURALGDE_DATA: expected a folder of data sets, got {given!r}, which is no folder.")
        folders.insert(0, Path(given))
    return folders


def find(name: str) -> Path | None:
    """Where a file such as "cora/ind.cora.x" is: in the folder `$NEURALGDE_DATA`, else in the cache, else None."""
    return next((folder / name for folder in data_folders() if (folder / name).is_file()), None)


def fetch(
    url: str,
    destination: str | Path,
    *,
    sha256: str | None = None,
    git_blob: str | None = None,
    progress: Progress | None = None,
) -> Path:
    """The file at `url`, downloaded to `destination`, unless it is there already.

    A relative destination is one in the cache. The content must have the SHA-256 or the git blob id given, in
    hexadecimal; nothing else ever appears at the destination. A git blob id, which GitHub shows for every file, is the
    SHA-1 of "blob <size>", a zero byte and the content.
    """
    if sha256 is None and git_blob is None:
        raise InputError("sha256, git_blob: expected one of them. What arrives from a network has to be checked.")
    scheme = urllib.parse.urlsplit(url).scheme
    if scheme not in ("https", "http", "file"):
        raise InputError(f"url: expected an address that starts with https:, http: or file:, got {url!r}.")
    path = cache_dir() / destination
    if path.is_file() and _mismatch(path, sha256, git_blob) is None:
        return path

    # In the same folder, because only there the rename is atomic.
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("xb") as out:
            for chunk in _chunks(url, path, progress):
                out.write(chunk)
            out.flush()
            os.fsync(out.fileno())
        if problem := _mismatch(part, sha256, git_blob):
            raise DataError(
                f"{url} is not the file that was published: {problem}. Nothing was kept. It was damaged on its way, or "
                f"the publisher changed it: try again, or put a copy of the right one at {path}."
            )
        os.replace(part, path)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error}. Set XDG_CACHE_HOME to a folder that can be written.") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
    return path


def _chunks(url: str, path: Path, progress: Progress | None) -> Iterator[bytes]:
    """What comes from an address, piece by piece, to its announced end."""
    request = urllib.request.Request(url, headers={"User-Agent": "neuralgde"})
    done, total = 0, None
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
            length = response.headers.get("Content-Length")
            total = int(length) if length and length.isdigit() else None
            while chunk := response.read(_CHUNK):
                done += len(chunk)
                yield chunk
                if progress is not None:
                    progress(done, total)
    except (OSError, http.client.HTTPException) as error:
        raise DataError(
            f"cannot download {url}: {error}. Without a network, get the file elsewhere and put it at {path}, or set "
            "NEURALGDE_DATA to a folder that has it."
        ) from error
    if total is not None and done != total:
        raise DataError(f"{url}: the connection ended after {done} of {total} bytes. Nothing was kept; try again.")


def _mismatch(path: Path, sha256: str | None, git_blob: str | None) -> str | None:
    """What is wrong with the content of a file, or None."""
    checks = []
    if sha256 is not None:
        checks.append(("SHA-256", sha256, hashlib.sha256()))
    if git_blob is not None:
        # Not a secret's guard: it is how git names what the publisher holds.
        blob = hashlib.sha1(usedforsecurity=False)
        blob.update(b"blob %d\0" % path.stat().st_size)
        checks.append(("git blob id", git_blob, blob))
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            for _, _, digest in checks:
                digest.update(chunk)
    for name, expected, digest in checks:
        if digest.hexdigest() != expected.lower():
            return f"its {name} is {digest.hexdigest()}, expected {expected}"
    return None
