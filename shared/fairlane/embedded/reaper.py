"""Ends the watched processes once the process that started it is gone; uses the standard library alone.

`fairlane.embedded.guard` starts this file by its path, so that the watchdog stays a few megabytes small. It
reads lines from standard input, ``watch PID`` and ``forget PID``; end of file means that the parent has died.
"""

import contextlib
import os
import select
import signal
import sys
import time

GRACE_S = 3.0
POLL_S = 0.05
PARENT_CHECK_S = 1.0


def read_stat(pid: int) -> tuple[str, str] | None:
    """A process's state letter and start time, which distinguishes it from a later process with its id.

    ``None`` if there is no such process, ``("?", "?")`` where the system does not say (no ``/proc``).
    """
    if not os.path.exists("/proc/self/stat"):  # noqa: PTH110 - pathlib is a slow import for so small a program
        return ("?", "?")
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            # The command name, in parentheses, may hold spaces; the fixed fields follow it.
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[0], fields[19]


def started_at(pid: int) -> str | None:
    """When a process began, in the kernel's own unit; ``None`` if there is no such process."""
    stat = read_stat(pid)
    return stat[1] if stat else None


def is_running(pid: int) -> bool:
    """Whether it still runs; a zombie does not."""
    stat = read_stat(pid)
    return stat is not None and stat[0] != "Z" and signal_group(pid, 0)


def signal_group(pid: int, number: int) -> bool:
    """Send to the group that ``pid`` leads; false if it has gone."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def end_all(watched: dict[int, str | None], grace_s: float = GRACE_S) -> None:
    """End every group whose leader is still the watched process: by SIGTERM, after ``grace_s`` by SIGKILL."""
    ours = [pid for pid, began in watched.items() if began is not None and started_at(pid) == began]
    for pid in ours:
        signal_group(pid, signal.SIGTERM)
        signal_group(pid, signal.SIGCONT)
    deadline = time.monotonic() + grace_s
    while any(is_running(pid) for pid in ours) and time.monotonic() < deadline:
        time.sleep(POLL_S)  # noqa: TID251 - a process of its own, with nothing to inject a clock into
    for pid in ours:
        if started_at(pid) == watched[pid]:
            signal_group(pid, signal.SIGKILL)


def obey(line: bytes, watched: dict[int, str | None]) -> None:
    """Apply one line of the parent's; ignores an unknown one."""
    verb, _, number = line.partition(b" ")
    with contextlib.suppress(ValueError):
        pid = int(number)
        if verb == b"watch":
            watched[pid] = started_at(pid)
        elif verb == b"forget":
            watched.pop(pid, None)


def follow(parent: int, watched: dict[int, str | None]) -> None:
    """Read the parent's lines until it is gone.

    End of file shows that at once, unless a process forked from the parent holds the pipe open.
    """
    pending = b""
    while True:
        readable, _, _ = select.select([0], [], [], PARENT_CHECK_S)
        if readable:
            chunk = os.read(0, 65536)
            if not chunk:
                return
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                obey(line, watched)
        elif os.getppid() != parent:
            return


def main() -> None:
    """Follow the processes that the parent names, and end them once the parent is gone."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    watched: dict[int, str | None] = {}
    follow(int(sys.argv[1]), watched)
    end_all(watched)


if __name__ == "__main__":
    main()
