"""How many calls a worker takes at once: more while its event loop keeps up, fewer while it does not.

Each call needs open files, so it never takes more than its process may open files for.
"""

import os
import resource
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

START_SLOTS = 100
"""Slots that a worker begins with: more than most lanes need, and no event loop is late for them."""

LEAST_SLOTS = 16
"""Slots that a worker keeps however late its loop is: the cause may be another process."""

STARTS_PER_S = 500
"""Calls that a worker starts a second beside its other work. A start takes 0.3 to 0.6 ms of CPU time."""

FULL = 0.8  # share of its slots in use from which a worker could use more
GROWTH = 1.5
SHRINKAGE = 0.8
IN_TIME_S = 0.05  # loop delay up to which it keeps up: little next to any model's answer
LATE_S = 0.25  # loop delay from which it does not: calls leave after their permits have expired
SAMPLES = 5  # delays that are judged together: a single pause does not come from load
MOST_MEMORY = 0.8  # share of the memory that this process may use

RESERVED_FILES = 48
"""Files besides those of calls: an idle worker has 24 open (Redis, broker, loops, logs), its children's pipes
and probes need some more."""

FILES_OF_SLOT = 2  # a call's connection, and one that is kept from the call before, to another host

ENOUGH_FILES = 65_536
"""Most that a process asks for, as ``LimitNOFILE`` of our systemd units."""


class Capacity:
    """The slots of one worker, at most the configured ``most``.

    With ``fixed`` they are `START_SLOTS`, or ``most`` if that is less: functions of users run on as many
    threads.
    """

    def __init__(self, most: int, *, fixed: bool = False, memory: Callable[[], float] | None = None) -> None:
        """``memory``: the share of its memory that the process uses."""
        self._most, self._fixed = most, fixed
        self._memory = memory or share_of_memory
        self._delays_s: deque[float] = deque(maxlen=SAMPLES)
        self._judged = False  # whether the slots changed since the last delay was noted
        self.slots = min(most, START_SLOTS)

    def note(self, delay_s: float) -> None:
        """Note how late the event loop was."""
        self._delays_s.append(delay_s)
        self._judged = False

    def update(self, busy: int) -> int:
        """The slots from now on, while ``busy`` of them are used. Called with each heartbeat.

        A loop between in time and late keeps its slots, but gets back those that it began with. It was late
        for another reason than its load, such as a busy machine.
        """
        if self._fixed or not self._delays_s or self._judged:
            return self.slots
        before, full = self.slots, busy >= FULL * self.slots
        usual_s, last_s = median(self._delays_s), self._delays_s[-1]
        if usual_s >= LATE_S or (busy and self._memory() > MOST_MEMORY):
            self.slots = max(min(self._most, LEAST_SLOTS), int(self.slots * SHRINKAGE))
        elif full and max(usual_s, last_s) <= IN_TIME_S:
            self.slots = min(self._most, int(self.slots * GROWTH) + 1)
        elif full and self.slots < START_SLOTS and last_s < LATE_S:
            self.slots = min(self._most, START_SLOTS, int(self.slots * GROWTH) + 1)
        self._judged = self.slots != before
        return self.slots


def share_of_memory(root: Path = Path("/"), machine_bytes: Callable[[], int] | None = None) -> float:
    """Resident memory of this process ÷ the least of the limits of its cgroups and the machine's memory.

    ``root`` has ``proc`` and ``sys``. 0 if the system does not say. A hardened unit of systemd shows no
    ``/proc/meminfo``, so the machine's memory is asked of the kernel.
    """
    with suppress(OSError, ValueError, IndexError):
        resident = int((root / "proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return resident / min([(machine_bytes or _machine_bytes)(), *_cgroup_limits(root)])
    return 0.0


def _machine_bytes() -> int:
    """Raises ``ValueError`` if the system does not report it."""
    pages = os.sysconf("SC_PHYS_PAGES")
    if pages <= 0:
        raise ValueError(pages)
    return pages * os.sysconf("SC_PAGE_SIZE")


def _cgroup_limits(root: Path) -> Iterator[int]:
    """The limits in bytes of this process's cgroup and those above it, of both versions of cgroups.

    A container sees its own cgroup as the root; a unit of systemd is some levels below it.
    https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
    """
    with suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            mount = root / "sys/fs/cgroup" / ("memory" if controllers else "")
            for group in (own := Path(path.lstrip("/")), *own.parents):
                for name in ("memory.limit_in_bytes",) if controllers else ("memory.max", "memory.high"):
                    with suppress(OSError, ValueError):  # "max" is no limit
                        yield max(1, int((mount / group / name).read_text()))


class Fit(NamedTuple):
    """Slots for which there are files, and in words why they are fewer than configured."""

    slots: int
    shortage: str = ""


def fit_slots(configured: int) -> Fit:
    """Raise this process's limit of open files as far as it may and needs to; the slots that then fit."""
    needed = RESERVED_FILES + FILES_OF_SLOT * configured
    limit = _raised(min(needed, ENOUGH_FILES))
    slots = max(1, (limit - RESERVED_FILES) // FILES_OF_SLOT)
    if slots >= configured:
        return Fit(configured)
    return Fit(slots, f"{limit:,} open files are allowed, enough for {slots:,} of {configured:,} slots")


def _raised(wanted: int) -> int:
    """The limit in force, after an attempt to have it at ``wanted`` at least."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _files(soft) < wanted:
        with suppress(ValueError, OSError):  # macOS allows fewer than it reports
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, _files(hard)), hard))
    return _files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _files(limit: int) -> int:
    return ENOUGH_FILES if limit == resource.RLIM_INFINITY else limit
