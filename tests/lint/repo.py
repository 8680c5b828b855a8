"""What every repository rule shares: the project's files, and a finding about one of them."""

import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPED_FOLDERS = {".git", ".venv", "build", "dist", "__pycache__"}


@dataclass(frozen=True, order=True)
class Finding:
    """One broken rule. A soft finding is shown and does not fail the lint."""

    path: str
    line: int
    message: str
    soft: bool = False

    def __str__(self) -> str:
        kind = "warning" if self.soft else "error"
        return f"{self.path}:{self.line}: {kind}: {self.message}"


@cache
def project_files() -> tuple[Path, ...]:
    """Files git tracks or would track; without git, every file outside build folders."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True)
        paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        paths = [p for p in ROOT.rglob("*") if not SKIPPED_FOLDERS & set(p.parts)]
    return tuple(sorted({p for p in paths if p.is_file()}))


def files_in(*folders: str, suffixes: tuple[str, ...] = ()) -> list[Path]:
    """Project files below the named folders, or all when none is named."""
    return [
        path
        for path in project_files()
        if (not folders or any(path.is_relative_to(ROOT / folder) for folder in folders))
        and (not suffixes or path.suffix in suffixes)
    ]


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def text_lines(path: Path) -> list[str]:
    """Lines of a text file; none for a binary one."""
    data = path.read_bytes()
    if b"\0" in data:
        return []
    return data.decode("utf-8", errors="replace").splitlines()


def is_generated(lines: list[str]) -> bool:
    """A generated file says so in one of its first five lines."""
    return any("@generated" in line for line in lines[:5])
