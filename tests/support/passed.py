"""The digest of all that tests in virtual time play: the very code that has passed need not pass again.

They depend on nothing but files of this repository, the locked libraries and the interpreter, and take
longest of all. `make virtual-time` records the digest, and whoever changes the code commits the record.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = ("scheduler", "shared", "workers")
TESTS = ("benchmarks/control", "benchmarks/zoo", "lab", "lua", "simulation", "support")
FILES = ("pyproject.toml", "requirements-dev.lock", "tests/__init__.py", "tests/conftest.py")


def played() -> Iterator[Path]:
    """Every file that such a test may read, in a fixed order."""
    yield from (ROOT / name for name in FILES)
    for folder in (*CODE, *(f"tests/{name}" for name in TESTS)):
        for path in sorted((ROOT / folder).rglob("*")):
            cached = "__pycache__" in path.parts or ".egg-info" in str(path)
            if path.is_file() and not cached:
                yield path


def digest() -> str:
    """SHA-256 over the interpreter's version and the names and contents of the files."""
    found = sha256(repr(sys.version_info[:2]).encode())
    for path in played():
        content = sha256(path.read_bytes()).hexdigest()
        found.update(f"{path.relative_to(ROOT).as_posix()} {content}\n".encode())
    return found.hexdigest()


if __name__ == "__main__":
    print(digest())
