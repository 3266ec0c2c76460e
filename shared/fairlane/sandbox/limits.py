"""What one piece of a team's work may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Of each piece: seconds of CPU, seconds in all, and bytes of memory beyond those of an idle child."""

    cpu_s: float = 2.0
    wall_s: float = 20.0
    memory_bytes: int = 512 * 1024 * 1024
