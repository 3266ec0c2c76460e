"""What one piece of a team's work may take, and the error for one that takes more."""

from __future__ import annotations

from dataclasses import dataclass

from fairlane.core.errors import FairlaneError


@dataclass(frozen=True, slots=True)
class Limits:
    """Of each piece: seconds of CPU, seconds in all, and bytes of memory beyond those of an idle child."""

    cpu_s: float = 2.0
    wall_s: float = 20.0
    memory_bytes: int = 512 * 1024 * 1024


class CutOff(FairlaneError):
    """A piece of work went past a limit and was ended. The message names the work, the bound and a remedy.

    ``setting`` is the bound's name.
    """

    def __init__(self, what: str, bound: str, setting: str) -> None:
        remedy = "simplify it, or shorten the row's values"
        super().__init__(f"{what}: it was ended, as it {bound} ({setting}); {remedy}")
        self.what, self.setting = what, setting


class WorkRaised(FairlaneError):
    """A piece of work raised what nobody expected; the message has its words."""


class NoChild(FairlaneError):
    """No child process could be started, or the pool is closed; the message says why."""
