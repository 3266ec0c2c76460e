"""Fits a worker's slots into the number of files that its process may open: each connection is one."""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import NamedTuple

RESERVED_FILES = 48
"""Files beside those of calls: an idle worker has 24 open (Redis, broker, loops, logs), its children's pipes
and probes need some more."""

FILES_OF_SLOT = 2  # a call's connection, and one that is kept from the call before, to another host

ENOUGH_FILES = 65_536
"""Most that a process asks for, as ``LimitNOFILE`` of our systemd units."""


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
        with suppress(ValueError, OSError):  # macOS allows fewer than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, _files(hard)), hard))
    return _files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _files(limit: int) -> int:
    return ENOUGH_FILES if limit == resource.RLIM_INFINITY else limit
