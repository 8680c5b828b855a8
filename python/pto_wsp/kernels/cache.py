"""Compiled kernels on disk, found by what they were made from.

A file is named `<source key>-<compiler key>.<digest of its bytes>.so`. It appears under its name in
one step, so several processes may fill the cache at once without a lock, and a file whose bytes no
longer have the digest in its name is never loaded.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

_SUFFIX = ".so"
_SCRATCH_PREFIX = "build-"
# A build folder this old was left behind by a process that died.
_SCRATCH_MAX_AGE_S = 6 * 3600.0

# Files that this process has loaded; they are never evicted by it.
_held: set[Path] = set()


def hold(path: Path) -> None:
    """Marks a file as loaded by this process."""
    _held.add(path)


@dataclass(frozen=True, slots=True)
class KernelCache:
    """A folder of compiled kernels whose total size is kept below `max_bytes`."""

    folder: Path
    max_bytes: int

    def find(self, source_key: str, compiler_key: str | None) -> Path | None:
        """The file made from this source by this compiler, or by any if None; None if there is
        none. A damaged file is removed."""
        pattern = f"{source_key}-{compiler_key or '*'}.*{_SUFFIX}"
        for path in sorted(self._shard(source_key).glob(pattern)):
            if _is_intact(path):
                with contextlib.suppress(OSError):  # the folder may be read-only
                    os.utime(path)
                return path
            _remove(path)
        return None

    def store(self, source_key: str, compiler_key: str, built: Path) -> Path:
        """Moves a compiled file, which must lie in `scratch()`, into the cache."""
        name = f"{source_key}-{compiler_key}.{_digest(built.read_bytes())}{_SUFFIX}"
        path = self._shard(source_key) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(built, path)
        self._evict(keep=path)
        return path

    @contextlib.contextmanager
    def scratch(self) -> Generator[Path, None, None]:
        """A folder on the same file system for one build; removed afterwards."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = Path(tempfile.mkdtemp(prefix=_SCRATCH_PREFIX, dir=self.folder))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def _shard(self, source_key: str) -> Path:
        return self.folder / source_key[:2]

    def _evict(self, keep: Path) -> None:
        """Removes the files used least recently until the rest fit."""
        self._remove_old_scratch()
        files: list[tuple[float, int, Path]] = []
        for path in self.folder.glob(f"??/*{_SUFFIX}"):
            with contextlib.suppress(OSError):  # another process may have removed it
                state = path.stat()
                files.append((state.st_mtime, state.st_size, path))
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= self.max_bytes:
                return
            if path != keep and path not in _held:
                _remove(path)
                total -= size

    def _remove_old_scratch(self) -> None:
        limit = time.time() - _SCRATCH_MAX_AGE_S
        for path in self.folder.glob(f"{_SCRATCH_PREFIX}*"):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < limit:
                    shutil.rmtree(path, ignore_errors=True)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _is_intact(path: Path) -> bool:
    try:
        return _digest(path.read_bytes()) == path.name.split(".")[1]
    except OSError:
        return False


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
