"""A worker takes no more calls than it may open connections for, and lacking one is no provider's fault."""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
from collections.abc import Callable
from typing import Any

import pytest

from fairlane.config.connections.connection import Connection
from fairlane.model.outcome import Aborted, Outcome
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.registry import build_provider
from fairlane_workers.transport import is_shortage
from fairlane_workers.upkeep.capacity import ENOUGH_FILES, FILES_OF_SLOT, RESERVED_FILES, fit_slots

REQUEST = Request("m", [{"role": "user", "content": "hi"}], {}, False, 5.0, 1024)
NEED_OF_100 = RESERVED_FILES + 100 * FILES_OF_SLOT


class Limit:
    """This process's limit of open files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> None:
        self.soft, self.hard = soft, hard
        monkeypatch.setattr(resource, "getrlimit", lambda _: (self.soft, self.hard))
        monkeypatch.setattr(resource, "setrlimit", self._set)

    def _set(self, _: int, both: tuple[int, int]) -> None:
        self.soft, self.hard = both


@pytest.mark.parametrize(
    ("soft", "hard", "after"),
    [
        (64, 4096, NEED_OF_100),
        (1024, 4096, 1024),
        (64, resource.RLIM_INFINITY, NEED_OF_100),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, resource.RLIM_INFINITY),
    ],
)
def test_the_limit_is_raised_as_far_as_the_slots_need(
    soft: int, hard: int, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = Limit(monkeypatch, soft, hard)

    assert fit_slots(100) == (100, "")
    assert (limit.soft, limit.hard) == (after, hard)


def test_slots_are_lowered_to_what_the_hard_limit_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = Limit(monkeypatch, 32, 64)

    assert fit_slots(100) == (8, "64 open files are allowed, enough for 8 of 100 slots")
    assert limit.soft == 64


def test_a_worker_always_has_a_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    Limit(monkeypatch, 16, 16)

    assert fit_slots(100).slots == 1


def test_a_process_asks_for_no_more_than_units_give(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = Limit(monkeypatch, 64, resource.RLIM_INFINITY)

    assert fit_slots(1_000_000).slots == (ENOUGH_FILES - RESERVED_FILES) // FILES_OF_SLOT
    assert limit.soft == ENOUGH_FILES


SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL)


def raising(error: Exception) -> Callable[[object], None]:
    def fail(_: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("place", "error", "more"),
    [
        *(
            ("fairlane_workers.transport.pool.open_socket", OSError(number, "short"), {})
            for number in SHORTAGES
        ),
        ("threading.Thread.start", RuntimeError("can't start new thread"), {}),
        (
            "threading.Thread.start",
            RuntimeError("can't start new thread"),
            {"api_key_command": ["print-a-key"]},
        ),
    ],
)
def test_a_call_without_a_socket_or_a_thread_ends_without_a_word_about_its_provider(
    monkeypatch: pytest.MonkeyPatch, place: str, error: Exception, more: dict[str, Any]
) -> None:
    async def scenario() -> Outcome:
        base_url = "http://127.0.0.1:9/v1" if isinstance(error, OSError) else "http://provider.invalid/v1"
        said = {"protocol": "openai", "base_url": base_url, **more}
        provider = build_provider("c", Connection.model_validate(said), None)
        with monkeypatch.context() as patch:
            patch.setattr(place, raising(error))
            outcome = await provider.call(REQUEST)
        await provider.aclose()
        return outcome

    outcome = asyncio.run(scenario())

    assert isinstance(outcome, Aborted)
    assert outcome.message.startswith("the worker's machine is short of files")


@pytest.mark.parametrize(
    ("error", "short"),
    [
        (OSError(errno.ECONNREFUSED, "refused"), False),
        (OSError(errno.ENETUNREACH, "unreachable"), False),
        (socket.gaierror(socket.EAI_NONAME, "unknown"), False),
        (socket.gaierror(socket.EAI_SYSTEM, "system"), True),
        (socket.gaierror(socket.EAI_MEMORY, "memory"), True),
    ],
)
def test_other_faults_are_the_networks(error: OSError, short: bool) -> None:
    fault = RuntimeError("cannot connect")
    fault.__cause__ = error

    assert is_shortage(fault) is short
