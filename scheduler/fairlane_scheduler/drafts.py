"""Items on their way to their lanes: each as far as it is known, and what a stretch of them came to."""

from __future__ import annotations

from dataclasses import dataclass, field

from fairlane.rendering import Call
from fairlane.store.attempts import Over
from fairlane.store.entry import Entry
from fairlane.store.sessions import Joined
from fairlane.verdict import Place


@dataclass(slots=True)
class Stretch:
    """What a stretch of items came to: entries by lane, jobs that are over, how many items were handed out.

    ``joined``: what items that are over with it tell their sessions.
    """

    entries: dict[str, list[Entry]] = field(default_factory=dict)
    over: list[Over] = field(default_factory=list)
    handed: int = 0
    memory: dict[str, str] = field(default_factory=dict)
    joined: dict[int, Joined] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Draft:
    """An item as far as it is known before anybody is called: its ``call``, or the ``output`` that is
    given.
    """

    place: Place
    lane: str = ""
    call: Call | None = None
    output: str | None = None
