"""A log that cannot be written, or that nobody reads, costs lines: it raises nothing and holds nobody up."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from structlog import configure, get_config

from fairlane.config.sections import LogSettings
from fairlane.core.events import Event
from fairlane.telemetry import log_stream
from fairlane.telemetry.log_stream import PIECE, LogStream, LostLines
from fairlane.telemetry.logs import configure_logging, get_logger
from tests.support.wait import wait_until


@pytest.fixture(autouse=True)
def ended(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Streams write nothing once their test is over: their descriptors are those of the next one."""
    made, begin = list[LogStream](), LogStream.__init__

    def noted(stream: LogStream, *given: Any, **named: Any) -> None:
        begin(stream, *given, **named)
        made.append(stream)

    monkeypatch.setattr(LogStream, "__init__", noted)
    yield
    for stream in made:
        stream.close()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for end in (reader, writer):
        with suppress(OSError):
            os.close(end)


def everything(reader: int, until: Callable[[bytes], bool]) -> bytes:
    found = b""
    while not until(found):
        found += os.read(reader, 1 << 16)
    return found


@given(st.lists(st.text(max_size=200), max_size=30), st.integers(0, 9000))
def test_texts_arrive_whole_and_in_order(texts: list[str], longest: int) -> None:
    reader, writer = os.pipe()
    try:
        stream, lines = LogStream(writer), [*texts, "x" * longest + "\n"]
        stream.writelines(lines)
        expected = "".join(lines).encode("utf-8", "backslashreplace")
        assert everything(reader, lambda found: len(found) >= len(expected)) == expected
        assert stream.drain()
        assert stream.lost == 0
        stream.close()
        assert stream.write("late\n") == len("late\n")
        assert stream.lost == 1
    finally:
        os.close(reader)
        os.close(writer)


def test_a_file_has_each_line_at_once(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        stream = LogStream(file.fileno())
        for number in range(3):
            stream.write(f"{number}\n")
            assert (tmp_path / "log").read_text().count("\n") == number + 1
        assert stream.drain()


@given(st.lists(st.integers(0, 3 * PIECE), max_size=20))
def test_pieces_end_with_lines_and_fit_into_a_pipe_at_once(lengths: list[int]) -> None:
    data = b"".join(b"x" * length + b"\n" for length in lengths)
    pieces = list(log_stream._pieces(data))
    assert b"".join(pieces) == data
    assert all(piece.endswith(b"\n") for piece in pieces)
    assert all(len(piece) <= PIECE or piece.count(b"\n") == 1 for piece in pieces)


def test_a_full_disk_costs_lines_and_is_reported_once_it_has_room(
    monkeypatch: pytest.MonkeyPatch, pipe: tuple[int, int]
) -> None:
    reader, writer = pipe
    full, write = True, os.write

    def on_full_disk(descriptor: int, data: bytes) -> int:
        if full and descriptor == writer:
            raise OSError(28, "No space left on device")
        return write(descriptor, data)

    monkeypatch.setattr(log_stream.os, "write", on_full_disk)
    monkeypatch.setattr(log_stream, "AGAIN_S", 0.05)
    stream = LogStream(writer)
    stream.write("first\nsecond\n")
    assert stream.drain()
    assert stream.lost == 2

    full = False

    assert everything(reader, lambda found: b"\n" in found).startswith(b"2 lines before this one are lost")
    stream.write("third\n")
    assert everything(reader, lambda found: b"\n" in found) == b"third\n"


def test_a_line_that_was_cut_off_does_not_run_into_the_next(
    monkeypatch: pytest.MonkeyPatch, pipe: tuple[int, int]
) -> None:
    reader, writer = pipe
    answers, write = iter([4, OSError(28, "full")]), os.write

    def cut(descriptor: int, data: bytes) -> int:
        answer = next(answers, None)
        if isinstance(answer, OSError):
            raise answer
        return write(descriptor, data[:answer])

    monkeypatch.setattr(log_stream.os, "write", cut)
    stream = LogStream(writer)
    stream.write("begun and cut\n")
    assert stream.drain()
    stream.write("whole\n")
    found = everything(reader, lambda found: found.endswith(b"whole\n"))
    assert found.split(b"\n") == [
        b"begu",
        b"1 lines before this one are lost: they could not be written",
        b"whole",
        b"",
    ]


def test_the_line_of_loss_is_a_line_like_others(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = pipe
    before = get_config()
    stream = LogStream(writer)
    try:
        configure_logging(LogSettings(format="json"), "worker@x", stream)  # type: ignore[arg-type]
        stream._lose(3)
        get_logger("x").info(Event.STORE_BACK)
        lost, back = everything(reader, lambda found: found.count(b"\n") == 2).splitlines()
    finally:
        configure(**before)
    shown = json.loads(lost)
    assert (shown["event"], shown["lines"], shown["level"]) == ("log_lines_lost", 3, "warning")
    assert (shown["process"], json.loads(back)["event"]) == ("worker@x", "store_back")


@pytest.mark.parametrize("descriptor", ["closed", "no reader", "no terminal", "/dev/full"])
def test_whatever_is_wrong_with_the_descriptor_a_write_returns(descriptor: str) -> None:
    if descriptor == "/dev/full":
        writer = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, writer = pty.openpty() if descriptor == "no terminal" else os.pipe()
        os.close(reader)
        if descriptor == "closed":
            os.close(writer)
    stream = LogStream(writer)
    for _ in range(10):
        assert stream.write("line\n") == 5
    assert stream.drain()
    assert stream.lost == 10
    assert stream.isatty() is (descriptor == "no terminal") or descriptor == "no terminal"
    if descriptor != "closed":
        os.close(writer)


def test_a_reader_that_stops_blocks_no_writer_and_waiting_lines_are_bounded(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = pipe
    monkeypatch.setattr(log_stream, "MOST_WAITING", 10_000)
    os.write(writer, b"j" * 65_536)  # the pipe is full
    stream = LogStream(writer)
    stream.write("x" * 99_999 + "\n")  # lost: longer than all that may wait
    for _ in range(5000):
        stream.write("y" * 99 + "\n")
    assert not stream.drain(0.01)
    assert 4800 <= stream.lost <= 4901

    found = everything(reader, lambda found: found.count(b"y\n") == 5001 - stream.lost)

    assert stream.drain()
    stream.write("last\n")
    found += everything(reader, lambda more: b"last\n" in more)
    assert f"{stream.lost:,} lines before this one are lost".encode() in found


def test_a_descriptor_that_does_not_block_is_waited_for(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    os.set_blocking(writer, False)
    stream = LogStream(writer)
    for _ in range(3000):
        stream.write("z" * 99 + "\n")
    found = everything(reader, lambda found: found.count(b"\n") == 3000)
    assert (len(found), stream.lost) == (300_000, 0)


def test_many_threads_lose_nothing(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    stream = LogStream(writer)
    threads = [
        threading.Thread(target=lambda n=n: [stream.write(f"{n} {k}\n") for k in range(500)])
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    lines = everything(reader, lambda found: found.count(b"\n") == 4000).decode().splitlines()
    for thread in threads:
        thread.join()
    for n in range(8):
        assert [line for line in lines if line.startswith(f"{n} ")] == [f"{n} {k}" for k in range(500)]


def test_lost_lines_are_a_metric(monkeypatch: pytest.MonkeyPatch, pipe: tuple[int, int]) -> None:
    registry, stream = CollectorRegistry(), LogStream(pipe[1])
    LostLines.register(registry)
    assert registry.get_sample_value("fairlane_log_lines_lost_total") == 0
    monkeypatch.setattr(sys, "stderr", stream)
    stream._lose(7)
    assert registry.get_sample_value("fairlane_log_lines_lost_total") == 7


PROGRAM = """
import sys, signal, time
from fairlane.telemetry.log_stream import install_log_streams
install_log_streams()
{body}
"""


def program(body: str, **streams: int | None) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-P", "-c", PROGRAM.format(body=body)], **streams)  # type: ignore[call-overload,no-any-return]


def test_the_last_words_of_a_program_arrive() -> None:
    with program(
        "print('out'); print('err', file=sys.stderr); raise ValueError('why')",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        out, err = process.communicate(timeout=60)
    assert (out, process.returncode) == (b"out\n", 1)
    assert err.startswith(b"err\n")
    assert err.endswith(b"ValueError: why\n")


def test_a_program_whose_log_is_on_a_full_disk_keeps_its_exit_code() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    with program("print('a' * 9999); sys.exit('words')", stdout=full, stderr=full) as process:
        assert process.wait(60) == 1
    with program("print('a', file=sys.__stdout__, flush=True)", stdout=full, stderr=full) as process:
        assert process.wait(60) == 0
    os.close(full)


def test_a_program_whose_log_nobody_reads_ends_within_a_bound(pipe: tuple[int, int]) -> None:
    _, writer = pipe
    body = "[print('x' * 99, file=sys.stderr) for _ in range(9000)]; print('done', file=sys.stderr)"
    began = time.monotonic()
    with program(body, stdout=writer, stderr=writer) as process:
        assert process.wait(60) == 0
    assert time.monotonic() - began < 30


def test_closed_streams_do_not_become_sockets() -> None:
    body = "import socket; print(socket.socket().fileno(), file=open(sys.argv[1], 'w'))"
    line = f'{sys.executable} -P -c "{PROGRAM.format(body=body).strip()}"'
    reader, writer = os.pipe()
    done = subprocess.run(
        ["/bin/sh", "-c", f"{line} /dev/fd/{writer} <&- >&- 2>&-"], pass_fds=[writer], timeout=60, check=False
    )
    os.close(writer)
    assert done.returncode == 0
    assert int(os.read(reader, 100)) > 2
    os.close(reader)


def test_a_signal_handler_may_write_while_its_thread_does(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    stream = LogStream(writer)
    before = signal.signal(signal.SIGALRM, lambda *_: stream.write("handler\n"))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        for _ in range(20_000):
            stream.write("")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert b"handler\n" in everything(reader, lambda found: b"\n" in found)
    wait_until(stream.drain)
