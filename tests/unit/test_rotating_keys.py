"""A key in a file or from a command may change while a worker runs: no restart, no lost attempt, no leak."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from fairlane.cli.operate.connection_views import connection_document
from fairlane.config.connections.connection import Connection
from fairlane.config.loader import load_secrets, load_settings
from fairlane.core.clock import ManualClock
from fairlane.core.errors import ConfigurationError
from fairlane.model.decision import Defer, RetryPolicy, decide
from fairlane.model.job import Claim
from fairlane.model.outcome import Aborted, AccessDenied, Outcome, Success
from fairlane_workers.providers.auth.authorizer import CredentialError
from fairlane_workers.providers.auth.key_sources import KeyCommand, KeyFile, ReadKey
from fairlane_workers.providers.auth.rotating_key import KEPT, RotatingKey, rotating_key
from fairlane_workers.providers.registry import build_provider
from fairlane_workers.upkeep.credentials import CredentialReports
from tests.support.provider_calls import ask
from tests.support.scripted_server import ScriptedServer, http, scripted_server
from tests.support.wait import wait_until
from tests.support.wires.openai_chat import OpenAIChatWire
from tests.support.worker_parts import WorkerParts, on_loop

OLD, NEW = "sk-old-c0ffee-1234567890", "sk-new-badcafe-1234567890"
WIRE = OpenAIChatWire()
HOUR_ON, HOUR_ON_DATE = "in an hour", "a date in an hour"
DENIED = [http(401, WIRE.error("invalid_api_key", f"Incorrect API key provided: {OLD}"))]


def connection(url: str = "http://127.0.0.1:9", **fields: Any) -> Connection:
    return Connection.model_validate({**WIRE.settings(url), "api_key_env": None, **fields})


def shown(server: ScriptedServer) -> list[str]:
    return [each.headers["authorization"].removeprefix("Bearer ") for each in server.received]


def printing(text: str) -> list[str]:
    return [sys.executable, "-c", f"print({text!r})"]


def read(command: list[str], lasts_s: float = 300.0, most_s: float = 20.0) -> ReadKey | None:
    return KeyCommand(command, lasts_s, most_s).read(anew=True)


class Listed(KeyFile):
    """A file that has one key after another, the last one for ever."""

    def __init__(self, *keys: str) -> None:
        self.keys = list(keys)

    def read(self, *, anew: bool) -> ReadKey | None:
        return ReadKey(self.keys.pop(0) if len(self.keys) > 1 else self.keys[0])


def test_a_call_that_was_refused_with_the_old_key_costs_no_attempt_and_the_next_one_has_the_new_key(
    tmp_path: Path,
) -> None:
    file = tmp_path / "key"
    file.write_text(f"{OLD}\n")

    async def scenario() -> tuple[list[Outcome], list[str]]:
        good = [http(200, WIRE.whole("hello"))]
        async with scripted_server([good, DENIED, good]) as server:
            made = build_provider(
                "c", connection(server.url, api_key_file=str(file)), None, clock=ManualClock()
            )
            outcomes = [await made.call(ask())]
            file.write_text(NEW)
            outcomes += [await made.call(ask()), await made.call(ask())]
            await made.aclose()
            return outcomes, shown(server)

    (first, second, third), keys = asyncio.run(scenario())
    assert isinstance(first, Success)
    assert isinstance(third, Success)
    assert isinstance(second, Aborted)
    assert second.message.startswith("the key has been replaced since the call left: ")
    assert not any(key in second.message for key in (OLD, NEW))
    assert keys == [OLD, OLD, NEW]
    decision = decide(second, Claim(attempts=0, rate_limits=0, waited_ms=0), RetryPolicy(), random.Random(0))
    assert isinstance(decision, Defer)
    assert (decision.cost, decision.feedback.signal) == ("withdrawn", "refused")


def test_a_refused_key_that_nobody_has_replaced_is_denied(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(OLD)

    async def scenario() -> Outcome:
        async with scripted_server([DENIED]) as server:
            made = build_provider(
                "c", connection(server.url, api_key_file=str(file)), None, clock=ManualClock()
            )
            outcome = await made.call(ask())
            await made.aclose()
            return outcome

    outcome = asyncio.run(scenario())
    assert isinstance(outcome, AccessDenied)
    assert OLD not in outcome.message


def test_a_defect_of_a_source_leaves_the_key_in_force_and_is_retrieved(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Listed):
        def read(self, *, anew: bool) -> ReadKey | None:
            if len(self.keys) == 1:
                raise RuntimeError(f"secret {OLD}")
            return super().read(anew=anew)

    async def scenario() -> list[str]:
        clock = ManualClock()
        key = RotatingKey("c", Broken(OLD, NEW), "place", clock)
        found = [await key.current()]
        for _ in range(3):
            clock.advance(1.0)
            looking = key.look_if_due()
            assert looking is not None
            found.append(await key.current())
            await asyncio.wait({looking})
        assert not await key.refused(1)
        return found

    with capture_logs() as logs:
        assert asyncio.run(scenario()) == [OLD] * 4
    gc.collect()
    assert "never retrieved" not in caplog.text
    assert {line["error"] for line in logs} == {"the key could not be read: RuntimeError"}


def test_new_keys_that_are_refused_one_after_the_other_are_denied_in_the_end() -> None:
    async def scenario() -> list[bool]:
        key = RotatingKey("c", Listed(*(f"key-{n}" for n in range(99))), "file:/k", ManualClock())
        await key.current()
        return [await key.refused(key.number) for _ in range(9)]

    assert asyncio.run(scenario()) == [True] + [False] * 8


def test_a_key_that_was_accepted_may_be_replaced_again() -> None:
    async def scenario() -> list[bool]:
        key = RotatingKey("c", Listed(*(f"key-{n}" for n in range(99))), "file:/k", ManualClock())
        found = []
        for _ in range(9):
            await key.current()
            key.accepted(key.number)
            found.append(await key.refused(key.number))
        return found

    assert asyncio.run(scenario()) == [True] * 9


def test_a_changed_file_is_noticed_within_a_second_without_a_rejection(tmp_path: Path) -> None:
    file, clock = tmp_path / "key", ManualClock(1)
    file.write_text(OLD)

    async def scenario() -> list[str]:
        key = RotatingKey("c", KeyFile(file), "file:/k", clock)
        used = [await key.current()]
        file.write_text(NEW)
        used.append(await key.current())
        clock.advance(1.1)
        await key.look()
        return [*used, await key.current()]

    assert asyncio.run(scenario()) == [OLD, OLD, NEW]


def test_a_file_that_is_away_or_empty_for_a_moment_leaves_the_key_in_force(tmp_path: Path) -> None:
    file, clock = tmp_path / "key", ManualClock(1)
    file.write_text(OLD)

    async def scenario() -> list[str]:
        key = RotatingKey("c", KeyFile(file), "file:/k", clock)
        used = [await key.current()]
        for change in (file.unlink, lambda: file.write_text(""), lambda: file.write_text(NEW)):
            change()
            clock.advance(1.1)
            await key.look()
            used.append(await key.current())
        return used

    with capture_logs() as logs:
        assert asyncio.run(scenario()) == [OLD, OLD, OLD, NEW]
    assert [line["event"] for line in logs] == ["credential_unreadable"] * 2
    assert not any(key in repr(logs) for key in (OLD, NEW))


def test_kubernetes_swaps_a_link_and_the_new_file_is_read(tmp_path: Path) -> None:
    for name, key in (("one", OLD), ("two", NEW)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "key").write_text(key)
        os.utime(tmp_path / name / "key", (1, 1))
    (tmp_path / "data").symlink_to("one")
    source = KeyFile(tmp_path / "data" / "key")
    assert source.read(anew=False) == ReadKey(OLD)
    assert source.read(anew=False) is None
    (tmp_path / "new").symlink_to("two")
    (tmp_path / "new").rename(tmp_path / "data")
    assert source.read(anew=False) == ReadKey(NEW)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file"),
        (b" \n", "has no key in it"),
        (b"two words", "no HTTP header can carry"),
        ("sk-ü".encode(), "no HTTP header can carry"),
        (b"a" * 70_000, "has more than 64 KiB"),
    ],
)
def test_a_file_without_a_usable_key_denies_calls_in_words_that_quote_none(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)

    async def scenario() -> Outcome:
        made = build_provider("c", connection(api_key_file=str(file)), None, clock=ManualClock())
        outcome = await made.call(ask())
        await made.aclose()
        return outcome

    outcome = asyncio.run(scenario())
    assert isinstance(outcome, AccessDenied)
    assert (said in outcome.message, str(file) in outcome.message) == (True, True)
    assert "words" not in outcome.message


def test_the_latest_keys_are_masked_in_answers(tmp_path: Path) -> None:
    keys = [f"sk-{number}-c0ffee-{number:010d}" for number in range(KEPT * 3)]

    async def scenario(folder: Path) -> str:
        file, clock = folder / "key", ManualClock(1)
        reply = [http(200, WIRE.whole(" ".join(keys)))]
        async with scripted_server([reply] * len(keys)) as server:
            made = build_provider("c", connection(server.url, api_key_file=str(file)), None, clock=clock)
            for key in keys:
                file.write_text(key)
                clock.advance(2)
                await made._authorizer._key.look()  # type: ignore[attr-defined]
                outcome = await made.call(ask())
            await made.aclose()
            assert isinstance(outcome, Success)
            assert shown(server) == keys
            return outcome.output

    output = asyncio.run(scenario(tmp_path))
    assert not [key for key in keys if key in output]


def test_keys_of_long_ago_are_masked_as_a_whole() -> None:
    async def scenario() -> RotatingKey:
        clock = ManualClock(1)
        key = RotatingKey("c", Listed(*(f"key-{n}" for n in range(KEPT + 3))), "file:/k", clock)
        for _ in range(KEPT + 3):
            await key.look()
            clock.advance(2)
        return key

    key = asyncio.run(scenario())
    assert tuple(key.latest) == tuple(f"key-{n}" for n in reversed(range(3, KEPT + 3)))
    assert key.former == ("key-0", "key-1", "key-2")
    assert all(f"key-{n}" in set(key.masks) for n in range(KEPT + 3))


def test_a_long_token_is_masked_without_holding_up_the_loop() -> None:
    token = "eyJ" + "".join(random.Random(3).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=1500))

    async def scenario() -> tuple[str, int]:
        key, turns = RotatingKey("c", Listed(token), "file:/k", ManualClock()), 0
        looking = asyncio.create_task(key.current())
        while not looking.done():
            turns += 1
            await asyncio.wait({looking}, timeout=0.01)
        return key.masks.masked(f"you sent {token[100:140]}"), turns

    shown, turns = asyncio.run(scenario())
    assert shown == "you sent ***"
    assert turns > 3


def test_a_command_prints_a_key_and_is_not_run_by_a_shell() -> None:
    assert read(printing(f" {NEW} "), lasts_s=7.0) == ReadKey(NEW, 7.0)
    echo = [sys.executable, "-c", "import sys; print(sys.argv[1])", "$HOME;id"]
    assert read(echo) == ReadKey("$HOME;id", 300.0)


@pytest.mark.parametrize(
    ("fields", "least_s", "most_s"),
    [
        (
            {"accessToken": NEW, "expires_on": HOUR_ON, "expiresOn": "2026-01-01 10:00:00"},
            3500,
            3541,
        ),
        ({"access_token": NEW, "expires_in": 3600}, 3540, 3540),
        ({"access_token": NEW, "expires_in": "40"}, 20, 20),
        ({"access_token": NEW, "expires_in": True}, 300, 300),
        ({"access_token": NEW, "expires_in": "soon"}, 300, 300),
        ({"access_token": NEW, "expires_in": "3_6"}, 300, 300),
        ({"token": NEW}, 300, 300),
        ({"token": NEW, "expiration": "2026-01-01 10:00:00"}, 300, 300),
        (
            {
                "status": {
                    "token": NEW,
                    "expirationTimestamp": HOUR_ON_DATE,
                }
            },
            3500,
            3541,
        ),
    ],
)
def test_a_command_may_print_json_with_the_token_s_end(
    fields: dict[str, Any], least_s: float, most_s: float
) -> None:
    now = datetime.now(UTC)  # parameters are made when tests are collected
    text = json.dumps(fields).replace(HOUR_ON_DATE, (now + timedelta(hours=1)).isoformat())
    found = read(printing(text.replace(f'"{HOUR_ON}"', str(now.timestamp() + 3600))))
    assert found is not None
    assert found.text == NEW
    assert found.good_s is not None
    assert least_s <= found.good_s <= most_s


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["/nowhere/at-all"], "cannot be started: No such file"),
        ([sys.executable, "-c", f"import sys; print('{NEW}', file=sys.stderr); sys.exit(3)"], "ended with 3"),
        (printing('{"token": '), "prints JSON that cannot be read"),
        (printing(f'{{"key": "{NEW}"}}'), "prints JSON without access_token"),
        (printing(f'{{"token": "{NEW}", "expires_on": 5}}'), "a token that has ended already"),
        (printing(""), "has no key in it"),
        (printing(f"please log in {NEW}"), "no HTTP header can carry"),
    ],
)
def test_the_error_of_a_command_without_a_key_names_it_and_hides_its_output(
    command: list[str], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CredentialError) as caught:
        read(command)
    assert said in str(caught.value)
    assert f"api_key_command {command[0]}" in str(caught.value)
    assert NEW not in str(caught.value) + "".join(capfd.readouterr())


def test_a_command_that_does_not_end_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    script = (
        "import subprocess, sys, pathlib\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"pathlib.Path({str(note)!r}).write_text(str(child.pid))\nchild.wait()"
    )
    with pytest.raises(CredentialError, match="has not ended within 2 s"):
        read([sys.executable, "-c", script], most_s=2.0)
    stat = Path(f"/proc/{note.read_text()}/stat")
    wait_until(lambda: not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z")


def test_a_command_s_key_is_renewed_before_its_end_while_calls_use_the_old_one(tmp_path: Path) -> None:
    counter, clock = tmp_path / "n", ManualClock(1)
    script = (
        f"import json, pathlib\np = pathlib.Path({str(counter)!r})\n"
        "n = int(p.read_text()) + 1 if p.exists() else 1\np.write_text(str(n))\n"
        "print(json.dumps({'access_token': f'token-{n}', 'expires_in': 3600}))"
    )
    made = rotating_key("c", connection(api_key_command=[sys.executable, "-c", script]), clock)

    async def scenario(key: RotatingKey) -> list[str]:
        used = [await key.current()]
        clock.advance(3530)
        used.append(await key.current())
        clock.advance(20)
        used.append(await key.current())
        await key.look()
        return [*used, await key.current()]

    assert made is not None
    assert asyncio.run(scenario(made)) == ["token-1"] * 3 + ["token-2"]


@given(st.lists(st.sampled_from(["call", "rotate", "accept", "second"]), max_size=40))
def test_a_call_s_rejection_is_free_only_if_another_key_is_in_force(steps: list[str]) -> None:
    class Source(KeyFile):
        number = 0

        def __init__(self) -> None:
            """Reads nothing."""

        def read(self, *, anew: bool) -> ReadKey | None:
            return ReadKey(f"key-{self.number}")

    async def scenario() -> None:
        source, clock = Source(), ManualClock(1)
        key = RotatingKey("c", source, "file:/k", clock)
        free = 0
        for step in steps:
            used, mark = await key.current(), key.number
            match step:
                case "rotate":
                    source.number += 1
                case "second":
                    clock.advance(1)
                case "accept":
                    key.accepted(mark)
                    free = 0
                case "call":
                    replaced = await key.refused(mark)
                    assert not replaced or await key.current() != used
                    free += replaced
                    assert free <= 2
            assert set(key.latest) <= {f"key-{n}" for n in range(source.number + 1)}

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ('api_key_file = "sk-secret"', "api_key_file", "absolute path"),
        ('api_key_env = "K"\napi_key_file = "/k"', "api_key_file", "conflicts with api_key_env"),
        ('api_key_file = "/k"\napi_key_command = ["a"]', "api_key_command", "conflicts with api_key_file"),
        ('auth = "none"\napi_key_file = "/k"', "api_key_file", "is not read with auth = 'none'"),
        ('auth = "google"\napi_key_file = "/k"', "api_key_file", "GOOGLE_APPLICATION_CREDENTIALS"),
        ('api_key_command = "az account"', "api_key_command", "must be a list"),
        ('api_key_command = [""]', "api_key_command", "at least 1 character"),
    ],
)
def test_a_key_has_one_place_that_is_read(tmp_path: Path, fields: str, field: str, said: str) -> None:
    file = tmp_path / "fairlane.toml"
    file.write_text(f'[connections.a]\nprotocol = "openai"\nbase_url = "https://h/v1"\n{fields}\n')
    with pytest.raises(ConfigurationError) as caught:
        load_settings(file, {})
    assert caught.value.field.startswith(f"connections.a.{field}")
    assert said in str(caught.value)
    assert "sk-secret" not in str(caught.value)


def test_a_file_takes_the_place_of_the_provider_s_variable(tmp_path: Path) -> None:
    key, file = tmp_path / "key", tmp_path / "fairlane.toml"
    file.write_text(f'[connections.a]\nprovider = "groq"\napi_key_file = "{key}"\n')
    settings = load_settings(file, {})
    assert settings.connections["a"].api_key_env is None
    assert load_secrets(settings, {"GROQ_API_KEY": OLD}).missing == {"a": str(key)}
    key.write_text(OLD)
    secrets = load_secrets(settings, {})
    assert (secrets.missing, dict(secrets.keys)) == ({}, {})


def test_an_empty_file_is_missing(tmp_path: Path) -> None:
    key, file = tmp_path / "key", tmp_path / "fairlane.toml"
    file.write_text(f'[connections.a]\nprovider = "groq"\napi_key_file = "{key}"\n')
    settings = load_settings(file, {})
    key.touch()
    assert load_secrets(settings, {}).missing == {"a": str(key)}
    document = connection_document("a", settings, load_secrets(settings, {}))
    assert (document["key_set"], document["lacks"]) == (False, [f"the file {key}"])
    place = settings.connections["a"].key_place
    assert place is not None
    assert place.absence == "is empty"
    key.unlink()
    assert place.absence == "cannot be read"
    key.write_text(OLD)
    assert load_secrets(settings, {}).missing == {}


def test_a_command_in_one_text_is_refused_with_how_to_write_it() -> None:
    with pytest.raises(ConfigurationError, match=r"list of words.*\[\"az\", ") as caught:
        Connection(protocol="openai", base_url="http://h/v1", api_key_command="echo sk-secret")
    assert "sk-secret" not in str(caught.value)


def test_a_worker_reports_a_new_key_s_fingerprint_and_a_token_by_its_place(tmp_path: Path) -> None:
    file, clock = tmp_path / "key", ManualClock(1)
    file.write_text(OLD)

    async def scene(parts: WorkerParts) -> None:
        key = RotatingKey("c", KeyFile(file), "file:/k", clock)
        reported = list[dict[str, str]]()
        held = load_secrets(load_settings(environ={}), {})
        reports = CredentialReports(
            parts.batcher, parts.keys, held, {"c": key}, lambda each: reported.append(dict(each))
        )
        for content in (OLD, OLD, NEW, "eyJa.b.c", "eyJd.e.f"):
            file.write_text(content)
            clock.advance(2)
            await reports.look()
        await reports.aclose()
        fingerprints = [each["c"] for each in reported]
        assert len(fingerprints) == len(set(fingerprints)) == 3
        assert key.latest[0] == "eyJd.e.f"

    with capture_logs() as logs:
        on_loop(scene)
    assert [line["event"] for line in logs] == ["credential_in_use"] * 3
    assert not any(key in repr(logs) for key in (OLD, NEW, "eyJ"))
