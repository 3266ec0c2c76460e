"""What a worker tells of its keys: a fingerprint by connection, in its log and with its beats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from structlog.testing import capture_logs

from fairlane.config.settings import WorkerSecrets
from fairlane_workers.execution.batcher import Batcher
from fairlane_workers.upkeep.credentials import SALT_BYTES, CredentialReports
from tests.support.worker_parts import GatedBatcher, WorkerParts, on_loop

HELD = WorkerSecrets.model_validate({"keys": {"a": "sk-1", "b": " sk-1\n", "c": "sk-2"}})


async def fingerprints(parts: WorkerParts, held: WorkerSecrets) -> Mapping[str, str]:
    reported: list[Mapping[str, str]] = []
    await CredentialReports(parts.batcher, parts.keys, held, {}, reported.append).look()
    return reported[-1]


def test_equal_keys_have_equal_fingerprints_and_others_others() -> None:
    async def scene(parts: WorkerParts) -> None:
        with capture_logs() as logs:
            shown = await fingerprints(parts, HELD)
        assert shown["a"] == shown["b"] != shown["c"]
        assert {len(each) for each in shown.values()} == {12}
        assert [(line["connection"], line["fingerprint"]) for line in logs] == list(shown.items())
        assert "sk-" not in repr(logs)

    on_loop(scene)


def test_the_salt_is_created_once() -> None:
    async def scene(parts: WorkerParts) -> None:
        first = await fingerprints(parts, HELD)
        assert await fingerprints(parts, HELD) == first
        assert len(parts.scheduler.redis.get(parts.keys.salt)) == SALT_BYTES

    on_loop(scene)


def test_without_keys_no_salt_is_drawn() -> None:
    async def scene(parts: WorkerParts) -> None:
        assert await fingerprints(parts, WorkerSecrets()) == {}
        assert not parts.scheduler.redis.exists(parts.keys.salt)

    on_loop(scene)


def test_a_beat_reports_the_fingerprints_and_nothing_else_of_the_keys() -> None:
    async def scene(parts: WorkerParts) -> None:
        shown = await fingerprints(parts, HELD)
        parts.heartbeat.holding(shown)
        await parts.heartbeat.beat()
        (beat,) = parts.scheduler.workers.beats(parts.scheduler.redis)
        assert beat.info.credentials == shown
        assert b"sk-" not in b"".join(parts.scheduler.redis.hvals(parts.keys.workers))

    on_loop(scene)


def test_a_salt_that_is_lost_with_a_primary_is_drawn_again() -> None:
    class Forgetful(Batcher):
        async def send(self, command: Any, **how: Any) -> Any:
            reply = await super().send(command, **how)
            if command[0] == "SET" and not lost:
                lost.append(await super().send(("DEL", command[1])))
            return reply

    lost: list[Any] = []

    async def scene(parts: WorkerParts) -> None:
        parts.batcher.__class__ = type("Both", (Forgetful, GatedBatcher), {})
        assert len(await fingerprints(parts, HELD)) == 3
        assert lost == [1]

    on_loop(scene)
