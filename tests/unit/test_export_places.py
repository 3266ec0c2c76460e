"""Where a path leads that results are written to: links, pipes and devices stay what they are."""

from __future__ import annotations

import errno
import os
import pty
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from fairlane.export.files import check_place, place_of, remove_earlier, whole_bytes, whole_file
from fairlane.export.formats import FORMATS, Format, export_records
from tests.support.records import make_record

RECORDS = [make_record(item) for item in range(3)]


@contextmanager
def read_meanwhile(path: Path) -> Iterator[list[bytes]]:
    """Reads a pipe to its end in a thread, as its reader does."""
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(path.read_bytes()), daemon=True)
    reader.start()
    yield found
    reader.join(timeout=10)


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe.jsonl"
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("chosen", FORMATS)
def test_a_pipe_gets_the_records_and_stays_a_pipe(pipe: Path, tmp_path: Path, chosen: Format) -> None:
    with read_meanwhile(pipe) as found:
        assert export_records(RECORDS, pipe, chosen) == 3
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]
    if chosen == "parquet":
        whole = tmp_path / "whole.parquet"
        whole.write_bytes(found[0])
        assert parquet.read_table(whole).num_rows == 3
    else:
        assert found[0].count(b"\n") == (3 if chosen == "jsonl" else 4)


@pytest.mark.parametrize("chosen", FORMATS)
def test_an_open_file_of_the_process_is_written_on(tmp_path: Path, chosen: Format) -> None:
    reading, writing = os.pipe()
    assert export_records(RECORDS, f"/dev/fd/{writing}", chosen) == 3
    os.close(writing)
    with open(reading, "rb") as received:  # noqa: PTH123 - of a descriptor
        assert len(received.read()) > 100
    with (tmp_path / "log").open("w") as log:
        log.write("before\n")
        log.flush()
        with whole_file(Path(f"/proc/self/fd/{log.fileno()}")) as out:
            out.write("between\n")
        log.write("after\n")
    assert (tmp_path / "log").read_text() == "before\nbetween\nafter\n"


def test_a_link_to_an_open_file_is_written_as_the_file_is(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    link = tmp_path / "stdout"
    link.symlink_to(f"/dev/fd/{writing}")
    with whole_bytes(link) as out:
        out.write(b"whole")
    assert os.read(reading, 9) == b"whole"
    assert link.is_symlink()
    os.close(reading)
    os.close(writing)


def test_a_descriptor_that_is_not_open_is_named(tmp_path: Path) -> None:
    for path in (Path("/dev/fd/987"), tmp_path / "link"):
        if path.parent == tmp_path:
            path.symlink_to("/dev/fd/987")
        with pytest.raises(OSError, match="No such file") as missing, whole_bytes(path):
            pytest.fail("must not begin")
        assert missing.value.filename == str(path)


def test_a_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link, longer = tmp_path / "there" / "out.jsonl", tmp_path / "link", tmp_path / "longer"
    link.symlink_to("there/out.jsonl")
    longer.symlink_to(link)
    for path, content in ((link, "made"), (longer, "replaced")):
        with whole_file(path) as out:
            out.write(content)
            assert not target.exists() or target.read_text() == "made"
        assert target.read_text() == content
    assert (link.is_symlink(), longer.is_symlink()) == (True, True)
    assert list(target.parent.iterdir()) == [target]


def test_a_loop_of_links_is_named(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(OSError, match="symbolic links") as endless, whole_file(loop):
        pytest.fail("must not begin")
    assert endless.value.filename == str(loop)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o444])
def test_a_file_that_takes_anothers_place_has_its_mode(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("of before")
    path.chmod(mode)
    with whole_file(path) as out:
        out.write("new")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", mode)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_that_takes_anothers_place_has_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("of before")
    os.chown(path, 1234, 2345)
    with whole_file(path) as out:
        out.write("new")
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 2345)


def test_an_owner_that_may_not_be_kept_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("of before")
    path.chmod(0o600)
    real = os.fstat

    def of_another(number: int) -> os.stat_result:
        fields = list(real(number))
        fields[4:6] = [4321, 4321]
        return os.stat_result(fields)

    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "not yours")

    monkeypatch.setattr("fairlane.export.files.os.fstat", of_another)
    monkeypatch.setattr("fairlane.export.files.os.fchown", refused)
    with whole_file(path) as out:
        out.write("new")
    monkeypatch.undo()
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", 0o600)


def test_a_socket_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        for attempt in (check_place, lambda each: whole_bytes(each).__enter__()):
            with pytest.raises(OSError, match="it is a socket") as refused:
                attempt(path)
            assert refused.value.filename == str(path)


def test_a_terminal_is_written_directly() -> None:
    controlling, terminal = pty.openpty()
    name = Path(os.ttyname(terminal))
    with whole_bytes(name) as out:
        out.write(b"hello")
    assert os.read(controlling, 9) == b"hello"
    assert stat.S_ISCHR(name.lstat().st_mode)
    os.close(controlling)
    os.close(terminal)


def test_trying_a_place_leaves_a_pipe_and_its_reader_alone(pipe: Path, tmp_path: Path) -> None:
    with read_meanwhile(pipe) as found:
        check_place(pipe)
        assert found == []
        with whole_bytes(pipe) as out:
            out.write(b"all of it")
    assert found == [b"all of it"]
    check_place(tmp_path / "new")
    assert list(tmp_path.iterdir()) == [pipe]


def test_an_earlier_file_goes_but_no_link_and_no_pipe(pipe: Path, tmp_path: Path) -> None:
    path, link = tmp_path / "errors", tmp_path / "link"
    path.write_text("of before")
    link.symlink_to(path)
    for each in (pipe, link, path):
        remove_earlier(each)
    assert sorted(tmp_path.iterdir()) == [link, pipe]
    assert link.is_symlink()


def test_an_aborted_write_leaves_a_pipe(pipe: Path) -> None:
    with read_meanwhile(pipe) as found, pytest.raises(ValueError, match="gone"):
        _break_off(pipe)
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert found == [b"half"]


def _break_off(path: Path) -> None:
    with whole_bytes(path) as out:
        out.write(b"half")
        raise ValueError("gone")


def test_room_for_the_rows_is_beside_the_file_unless_it_is_none(pipe: Path, tmp_path: Path) -> None:
    assert place_of(tmp_path / "out.csv").folder == tmp_path
    assert place_of(pipe).folder is None


@pytest.mark.parametrize("chosen", FORMATS)
def test_a_full_disk_is_named_with_the_file(
    tmp_path: Path, chosen: Format, full_device: Callable[[], Path]
) -> None:
    path = full_device()
    with pytest.raises(OSError, match="No space left on device") as full:
        export_records(RECORDS * 5_000, path, chosen)
    assert (full.value.errno, full.value.filename) == (errno.ENOSPC, str(path))


def test_room_that_ends_while_rows_are_put_aside_is_named_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        def __init__(self, **_: object) -> None: ...

        def write(self, _: bytes) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def close(self) -> None: ...

    monkeypatch.setattr("fairlane.export.spool.tempfile.TemporaryFile", Full)
    with pytest.raises(OSError, match="No space left") as full:
        export_records(RECORDS, tmp_path / "out.csv")
    assert full.value.filename == str(tmp_path / "out.csv")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def full_device(tmp_path: Path) -> Callable[[], Path]:
    """A device that is always full: the kernel's own one, which this code must not replace."""

    def checked() -> Path:
        path = Path("/dev/full")
        if not (path.exists() and stat.S_ISCHR(path.stat().st_mode)):
            pytest.skip("there is no /dev/full")
        assert place_of(path).direct
        return path

    return checked


def test_threads_that_write_one_file_at_once_leave_one_whole_version(tmp_path: Path) -> None:
    path, both = tmp_path / "out.txt", threading.Barrier(2, timeout=10)

    def write(text: str) -> None:
        with whole_file(path) as out:
            both.wait()
            out.write(text * 1000)
            both.wait()

    versions = ["a", "bb"]
    writers = [threading.Thread(target=write, args=(text,)) for text in versions]
    for each in writers:
        each.start()
    for each in writers:
        each.join(timeout=20)
    assert path.read_text() in [text * 1000 for text in versions]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127, "😀" * 63], ids=["ascii", "latin", "emoji"])
def test_a_name_as_long_as_a_file_system_takes_can_be_written(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    check_place(path)
    with whole_file(path) as out, whole_file(tmp_path / f"{name[:-1]}y") as other:
        out.write("one")
        other.write("two")
    assert path.read_text() == "one"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_digit_that_is_no_number_names_no_open_file() -> None:
    with pytest.raises(OSError, match="²"):
        check_place(Path("/dev/fd/²"))
