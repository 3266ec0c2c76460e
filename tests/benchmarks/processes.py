"""What the kernel knows of a running process: CPU time and memory."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

_CPU_CLOCK = 2  # CPUCLOCK_SCHED of the kernel's clock ids: exact, of all threads, also those that ended


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has used so far, exact to the nanosecond."""
    return time.clock_gettime((~pid << 3) | _CPU_CLOCK)


def cpu_of(pids: Mapping[str, int]) -> dict[str, float]:
    """`cpu_s` of several processes, by name."""
    return {name: cpu_s(pid) for name, pid in pids.items()}


def resident_mb(pid: int) -> float:
    """Resident memory of a process, in MiB."""
    return _status_kb(pid, "VmRSS") / 1024


def peak_mb(pid: int) -> float:
    """The most resident memory that a process has had, in MiB."""
    return _status_kb(pid, "VmHWM") / 1024


def _status_kb(pid: int, field: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith(f"{field}:")).split()[1])
