"""Requests are signed as Amazon documents it, with credentials that are found, renewed and never shown."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from botocore.credentials import Credentials, RefreshableCredentials
from botocore.exceptions import ConnectTimeoutError, ProfileNotFound
from hypothesis import given
from hypothesis import strategies as st

from fairlane.config.connections.connection import Connection
from fairlane.core.clock import ManualClock
from fairlane.core.errors import ConfigurationError
from fairlane.model.outcome import Aborted, Outcome, Success
from fairlane_workers.providers.auth import sigv4 as sigv4_module
from fairlane_workers.providers.auth.authorizer import CredentialError
from fairlane_workers.providers.auth.sigv4 import FAILED_MS, FRESH_MS, SigV4, region_of
from fairlane_workers.providers.registry import build_provider
from fairlane_workers.transport import TransportError
from tests.support.provider_calls import ask
from tests.support.scripted_server import http, scripted_server
from tests.support.wires.bedrock import BedrockWire

IDENTITY, SECRET, TOKEN = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "FwoGZXIvYXdzEXAMPLE"
MODEL = "arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fus.m-v1%3A0"
URL = httpx.URL(f"https://bedrock-runtime.us-east-1.amazonaws.com/model/{MODEL}/converse")
SENT = httpx.Headers({"host": URL.host, "content-type": "application/json", "user-agent": "fairlane"})
BODY = b'{"messages":[]}'


class Found:
    """A session that finds the given credentials; counts how often it is asked, and by which threads."""

    def __init__(self, *answers: object) -> None:
        self._answers = list(answers)
        self.threads: list[int] = []

    def __call__(self) -> Any:
        return self

    def get_credentials(self) -> Any:
        self.threads.append(threading.get_ident())
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def signer(session: Callable[[], Any], clock: ManualClock | None = None) -> SigV4:
    return SigV4("us-east-1", clock=clock or ManualClock(1), session=session)


async def signed(sigv4: SigV4) -> httpx.Headers:
    return await sigv4.sign("POST", URL, SENT, BODY)


def by_hand(stamp: str, names: str) -> str:
    """As https://docs.aws.amazon.com/IAM/latest/UserGuide/create-signed-request.html has it."""
    day, scope = stamp[:8], f"{stamp[:8]}/us-east-1/bedrock/aws4_request"
    shown = {
        "content-type": "application/json",
        "host": URL.host,
        "x-amz-date": stamp,
        "x-amz-security-token": TOKEN,
    }
    headers = "".join(f"{name}:{shown[name]}\n" for name in names.split(";"))
    path = f"/model/{MODEL.replace('%', '%25')}/converse"  # encoded twice, for all services but S3
    canonical = f"POST\n{path}\n\n{headers}\n{names}\n{hashlib.sha256(BODY).hexdigest()}"
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{SECRET}".encode()
    for part in (day, "us-east-1", "bedrock", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


@pytest.mark.parametrize(
    ("token", "names"),
    [(None, "content-type;host;x-amz-date"), (TOKEN, "content-type;host;x-amz-date;x-amz-security-token")],
)
def test_a_signature_is_the_documented_one(token: str | None, names: str) -> None:
    sent = asyncio.run(signed(signer(Found(Credentials(IDENTITY, SECRET, token)))))
    stamp = sent["x-amz-date"]
    assert sent["authorization"] == (
        f"AWS4-HMAC-SHA256 Credential={IDENTITY}/{stamp[:8]}/us-east-1/bedrock/aws4_request, "
        f"SignedHeaders={names}, Signature={by_hand(stamp, names)}"
    )
    assert sent.get("x-amz-security-token") == token
    assert sent["user-agent"] == "fairlane"
    assert "authorization" not in SENT


def test_credentials_are_looked_up_off_the_loop_once_for_all_calls() -> None:
    found = Found(Credentials(IDENTITY, SECRET))
    sigv4 = signer(found)
    assert sigv4.secrets == ()

    async def scenario() -> None:
        await asyncio.gather(*(signed(sigv4) for _ in range(20)))

    asyncio.run(scenario())
    assert len(found.threads) == 1
    assert found.threads[0] != threading.get_ident()


def test_a_call_that_gives_up_does_not_stop_the_look_up_of_others() -> None:
    began, go_on = threading.Event(), threading.Event()

    class Slow(Found):
        def get_credentials(self) -> Any:
            began.set()
            go_on.wait(5)
            return super().get_credentials()

    found = Slow(Credentials(IDENTITY, SECRET))
    sigv4 = signer(found)

    async def scenario() -> httpx.Headers:
        first, second = asyncio.create_task(signed(sigv4)), asyncio.create_task(signed(sigv4))
        await asyncio.to_thread(began.wait, 5)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        go_on.set()
        return await second

    assert "authorization" in asyncio.run(scenario())
    assert len(found.threads) == 1


def test_secrets_are_the_key_and_the_token_and_no_text_form_has_them() -> None:
    sigv4 = signer(Found(Credentials(IDENTITY, SECRET, TOKEN)))
    asyncio.run(signed(sigv4))
    assert sigv4.secrets == (SECRET, TOKEN)
    assert SECRET not in f"{sigv4!r}"


def test_lasting_keys_are_looked_up_anew_after_a_minute() -> None:
    clock, found = ManualClock(1), Found(Credentials("OLD", "old"), Credentials("NEW", "new"))
    sigv4 = signer(found, clock)

    async def scenario() -> list[str]:
        used = [await signed(sigv4)]
        for step in (FRESH_MS - 1, 1):
            clock.advance(step / 1000)
            used.append(await signed(sigv4))
        return [headers["authorization"].partition("/")[0].rpartition("=")[2] for headers in used]

    assert asyncio.run(scenario()) == ["OLD", "OLD", "NEW"]
    assert sigv4.secrets == ("new",)


@pytest.mark.parametrize(("age_s", "used"), [(1, "OLD"), (10, "NEW")])
def test_keys_that_amazon_rejects_are_looked_up_anew_unless_they_are_new(age_s: int, used: str) -> None:
    clock, found = ManualClock(1), Found(Credentials("OLD", "old"), Credentials("NEW", "new"))
    sigv4 = signer(found, clock)

    async def scenario() -> str:
        await signed(sigv4)
        clock.advance(age_s)
        sigv4.reject()
        return (await signed(sigv4))["authorization"]

    assert f"Credential={used}/" in asyncio.run(scenario())


def test_temporary_credentials_are_renewed_before_they_end() -> None:
    def expiring(minutes: int, token: str) -> dict[str, str]:
        ends = datetime.now(UTC) + timedelta(minutes=minutes)
        return {"access_key": IDENTITY, "secret_key": SECRET, "token": token, "expiry_time": ends.isoformat()}

    issued = iter([expiring(5, "first"), expiring(60, "second")])
    source = RefreshableCredentials.create_from_metadata(next(issued), lambda: next(issued), "test")
    found, clock = Found(source), ManualClock(1)
    sigv4 = signer(found, clock)

    async def scenario() -> list[str]:
        used = []
        for _ in range(3):
            used.append((await signed(sigv4))["x-amz-security-token"])
            clock.advance(FRESH_MS / 1000)
        return used

    assert asyncio.run(scenario()) == ["second"] * 3
    assert len(found.threads) == 1  # the source renews itself


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (None, CredentialError, "AWS_PROFILE"),
        (ProfileNotFound(profile="mine"), CredentialError, "mine"),
        (OSError("unreadable"), CredentialError, "unreadable"),
        (KeyError(), CredentialError, "KeyError"),
        (ConnectTimeoutError(endpoint_url="http://sts"), TransportError, "http://sts"),
    ],
)
def test_a_failed_credential_lookup_is_cached_briefly_and_then_retried(
    answer: object, kind: type[Exception], text: str
) -> None:
    clock, found = ManualClock(1), Found(answer, Credentials(IDENTITY, SECRET))
    sigv4 = signer(found, clock)

    async def scenario() -> None:
        for _ in range(3):
            with pytest.raises(kind, match=text):
                await signed(sigv4)
        assert len(found.threads) == 1
        clock.advance(FAILED_MS / 1000)
        assert "authorization" in await signed(sigv4)

    asyncio.run(scenario())


def test_the_chain_is_botocore_s_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clock, file = ManualClock(1), tmp_path / "credentials"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    sigv4 = SigV4("us-east-1", clock=clock)

    async def scenario() -> None:
        with pytest.raises(CredentialError, match="no AWS credentials"):
            await signed(sigv4)
        file.write_text("[default]\naws_access_key_id = FILED\naws_secret_access_key = filed\n")
        clock.advance(FAILED_MS / 1000)
        assert "Credential=FILED/" in (await signed(sigv4))["authorization"]
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "VARIABLE")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "variable")
        clock.advance(FRESH_MS / 1000)
        assert "Credential=VARIABLE/" in (await signed(sigv4))["authorization"]

    asyncio.run(scenario())


# The machine's clock is wrong, or steps


@dataclass
class Amazon:
    """Takes signatures up to five minutes off its own time, with keys that are right or not."""

    clock: ManualClock
    keys_are_right: bool = True

    def takes(self, sent: httpx.Headers) -> bool:
        stamp = datetime.strptime(sent["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        return self.keys_are_right and abs(stamp.timestamp() * 1000 - self.clock.now_ms()) <= 300_000


@dataclass
class SteppingClock(ManualClock):
    """A machine's: its wall clock is off, and steps; it may be suspended, which its monotonic clock omits."""

    amazon: ManualClock
    off_ms: int = 0
    suspended_ms: int = 0

    def now_ms(self) -> int:
        return self.amazon.now_ms() + self.off_ms

    def monotonic_ms(self) -> int:
        return self.amazon.now_ms() - self.suspended_ms


STEPS = st.lists(
    st.tuples(st.sampled_from(["wall", "suspended", "time"]), st.integers(-(10**9), 10**9)), max_size=12
)


async def called(sigv4: SigV4, amazon: Amazon) -> Literal["taken", "free", "denied"]:
    sent, mark = await signed(sigv4), sigv4.mark
    if amazon.takes(sent):
        sigv4.accept(mark)
        return "taken"
    return "free" if await sigv4.replaced(mark, amazon.clock.now_ms()) else "denied"


@given(off_ms=st.integers(-(10**10), 10**10), steps=STEPS)
def test_a_clock_that_is_wrong_or_steps_costs_a_call_that_costs_no_attempt(
    off_ms: int, steps: list[tuple[str, int]]
) -> None:
    amazon = Amazon(ManualClock())
    clock = SteppingClock(amazon.clock, off_ms)
    sigv4 = signer(Found(Credentials(IDENTITY, SECRET)), clock)

    async def scenario() -> None:
        assert "taken" in [await called(sigv4, amazon) for _ in range(2)]
        for kind, by_ms in steps:
            match kind:
                case "wall":
                    clock.off_ms += by_ms
                    assert await called(sigv4, amazon) == "taken"
                case "suspended":
                    clock.suspended_ms += abs(by_ms)
                    amazon.clock.advance(abs(by_ms) / 1000)
                    assert [await called(sigv4, amazon) for _ in range(2)][-1] == "taken"
                case _:
                    amazon.clock.advance(abs(by_ms) / 1000)
                    assert await called(sigv4, amazon) == "taken"

    asyncio.run(scenario())


@given(off_ms=st.integers(-(10**10), 10**10), step_ms=st.integers(-(10**9), 10**9))
def test_wrong_keys_are_denied_but_once_whatever_the_clock_shows(off_ms: int, step_ms: int) -> None:
    amazon = Amazon(ManualClock(), keys_are_right=False)
    clock = SteppingClock(amazon.clock, off_ms)
    sigv4 = signer(Found(Credentials(IDENTITY, SECRET)), clock)

    async def scenario() -> list[str]:
        before = [await called(sigv4, amazon) for _ in range(3)]
        clock.suspended_ms += abs(step_ms)
        return before + [await called(sigv4, amazon) for _ in range(3)]

    assert sorted(asyncio.run(scenario()))[:5] == ["denied"] * 5


def test_calls_that_left_before_the_time_was_corrected_cost_no_attempt_either() -> None:
    amazon = Amazon(ManualClock())
    sigv4 = signer(Found(Credentials(IDENTITY, SECRET)), SteppingClock(amazon.clock, 600_000))

    async def scenario() -> list[bool]:
        await signed(sigv4)
        mark, now_ms = sigv4.mark, amazon.clock.now_ms()
        return [await sigv4.replaced(mark, now_ms) for _ in range(5)]

    assert asyncio.run(scenario()) == [True] * 5


def test_the_time_is_that_of_the_rejection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", IDENTITY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    expired = {"x-amzn-errortype": "InvalidSignatureException", "date": "Tue, 14 Nov 2023 22:23:20 GMT"}
    script = [
        [http(403, {"message": "Signature expired"}, expired)],
        [http(200, BedrockWire().whole("x"))],
    ]

    async def scenario() -> tuple[list[Outcome], list[str]]:
        async with scripted_server(script) as server:
            settings = connection(server.url, auth="sigv4", region="us-east-1")
            made = build_provider("c", settings, None, clock=ManualClock())
            outcomes = [await made.call(ask()), await made.call(ask())]
            await made.aclose()
            return outcomes, [each.headers["x-amz-date"] for each in server.received]

    (first, second), stamps = asyncio.run(scenario())
    assert isinstance(first, Aborted)
    assert isinstance(second, Success)
    assert stamps == ["20231114T221320Z", "20231114T222320Z"]


# What is configured


def connection(base_url: str, **settings: Any) -> Connection:
    return Connection.model_validate({"protocol": "bedrock", "base_url": base_url, **settings})


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("bedrock-runtime.us-east-1.amazonaws.com", "us-east-1"),
        ("bedrock-runtime-fips.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
        ("vpce-0a1b-2c3d.bedrock-runtime.eu-central-1.vpce.amazonaws.com", "eu-central-1"),
        ("bedrock-runtime.ap-southeast-2.api.aws", "ap-southeast-2"),
    ],
)
def test_a_region_is_read_from_amazon_s_host_names(host: str, region: str) -> None:
    assert region_of(connection(f"https://{host}")) == region
    assert region_of(connection(f"https://{host}", region="us-west-2")) == "us-west-2"


def test_a_region_that_nothing_shows_is_asked_for() -> None:
    with pytest.raises(ConfigurationError, match=r"region: .*gateway\.example.*us-east-1"):
        build_provider("c", connection("https://gateway.example"), None)


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sigv4_module, "find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match=r"pip install 'fairlane\[bedrock\]'"):
        SigV4("us-east-1")
    with pytest.raises(ConfigurationError, match=r"protocol: .*bedrock.*pip install"):
        build_provider("c", connection("https://x.example", api_key_env="KEY"), None)
