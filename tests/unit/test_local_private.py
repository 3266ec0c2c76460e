"""What a local deployment keeps, prompts and answers among it, is for its owner alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane.embedded.private import make_private
from fairlane.embedded.server import EmbeddedRedis
from fairlane.local.planning import hide_data_dir
from tests.support.full_disk import full_disk


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_missing_folders_are_made_private_and_others_stay(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    make_private(shared / "a" / "b")
    assert [mode(path) for path in (shared, shared / "a", shared / "a" / "b")] == [0o755, 0o700, 0o700]
    make_private(shared)
    assert mode(shared) == 0o755


def test_a_data_directory_is_private_also_one_of_an_earlier_start(tmp_path: Path) -> None:
    data = tmp_path / ".fairlane"
    hide_data_dir(data)
    assert mode(data) == 0o700
    data.chmod(0o755)
    hide_data_dir(data)
    assert mode(data) == 0o700


def test_a_full_disk_leaves_no_empty_mark(tmp_path: Path) -> None:
    """Nothing would write it again: version control would see prompts and answers."""
    with full_disk(), pytest.raises(OSError, match="gitignore"):
        hide_data_dir(tmp_path)
    hide_data_dir(tmp_path)
    assert (tmp_path / ".gitignore").read_text(encoding="utf-8") == "*\n"


def test_a_directory_of_somebody_else_keeps_its_mode(tmp_path: Path) -> None:
    data = tmp_path / "project"
    data.mkdir(mode=0o755)
    (data / ".gitignore").write_text("build/\n", encoding="utf-8")
    hide_data_dir(data)
    assert mode(data) == 0o755
    assert (data / ".gitignore").read_text(encoding="utf-8") == "build/\n"


def test_a_project_is_neither_hidden_nor_closed_by_later_starts(tmp_path: Path) -> None:
    data = tmp_path / "project"
    data.mkdir(mode=0o755)
    (data / "code.py").touch()
    for _ in range(2):
        hide_data_dir(data)
    assert mode(data) == 0o755
    assert [path.name for path in data.iterdir()] == ["code.py"]


def test_an_empty_directory_that_another_user_owns_can_be_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, mode: int) -> None:
        raise PermissionError(path, mode)

    monkeypatch.setattr(Path, "chmod", refuse)
    for _ in range(2):
        hide_data_dir(tmp_path)
    assert (tmp_path / ".gitignore").read_text(encoding="utf-8") == "*\n"


def test_nobody_else_reads_what_redis_writes(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with EmbeddedRedis(data, unix_socket=True) as redis:
        assert redis.data_dir.is_dir()
    written = [path for path in data.rglob("*") if not path.is_symlink()]
    assert any("appendonly" in path.name for path in written)
    assert mode(data) == 0o700
    assert [path for path in written if mode(path) & 0o077 and "appendonly" in path.as_posix()] == []
