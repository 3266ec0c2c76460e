"""What a limit hangs on is one text in every process, provider by provider; who agrees in it shares lanes."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.config.connections.connection import Connection
from fairlane.config.connections.lane_identity import (
    credentials_by_connection,
    lane_identity,
    lane_owners,
    lane_under,
)
from fairlane.config.connections.presets import PROVIDERS
from fairlane.core.redaction import fingerprint
from fairlane.model.lane import endpoint_id

KEY, OTHER = fingerprint("sk-1", b"salt"), fingerprint("sk-2", b"salt")
URLS = ("https://one.example.com/v1", "https://two.example.com/v1")
REGIONS = ("us-east-1", "eu-west-1")
MODELS = ("big", "small")

# From the table of what limits each provider: the parts of its lane's key, besides the provider itself.
ACCOUNT, MODEL = frozenset({"credential"}), frozenset({"credential", "model"})
ACCOUNTS = ("deepseek", "fireworks", "mistral", "lepton", "replicate", "baseten")
MODELS_OF_AN_ACCOUNT = ("anthropic", "xai", "groq", "qwen", "together", "cerebras", "openrouter")
TABLE = {
    "openai": {"credential", "base_url", "model"},
    "azure_openai": {"base_url", "model"},
    "bedrock": {"region", "model", "credential"},
    "gemini": MODEL,
    **dict.fromkeys(MODELS_OF_AN_ACCOUNT, MODEL),
    **dict.fromkeys(ACCOUNTS, ACCOUNT),
    "vertex": {"base_url", "model"},
    **dict.fromkeys(("ollama", "vllm"), frozenset({"base_url"})),
}


def connection(provider: str, url: str = URLS[0], region: str = REGIONS[0], **more: Any) -> Connection:
    given: dict[str, Any] = {"provider": provider, "base_url": url, "region": region}
    return Connection.model_validate({**given, "api_key_env": "SOME_KEY", "auth": "bearer", **more})


def identity(provider: str, part: str = "") -> str:
    """Of a provider's model, ``part`` being another than in all that differ in something else."""
    url, region = URLS[part == "base_url"], REGIONS[part == "region"]
    credential = OTHER if part == "credential" else KEY
    return lane_identity(connection(provider, url, region), MODELS[part == "model"], credential)


def test_the_table_has_every_provider() -> None:
    assert set(TABLE) == set(PROVIDERS)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("part", ["credential", "base_url", "region", "model"])
def test_a_lane_hangs_on_the_parts_that_the_table_names_and_on_no_other(provider: str, part: str) -> None:
    assert (identity(provider) != identity(provider, part)) == (part in TABLE[provider])


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        ("openai", f"credential={KEY} base_url=https://one.example.com/v1 model=big"),
        ("azure_openai", "base_url=https://one.example.com/v1 model=big"),
        ("bedrock", f"provider=bedrock credential={KEY} region=us-east-1 model=big"),
        ("gemini", f"provider=gemini credential={KEY} model=big"),
        ("anthropic", f"provider=anthropic credential={KEY} model=big"),
        ("mistral", f"provider=mistral credential={KEY}"),
        ("ollama", "base_url=https://one.example.com/v1"),
    ],
)
def test_an_identity_is_stable_text_that_people_can_read(provider: str, expected: str) -> None:
    assert identity(provider) == expected


def test_an_endpoint_is_its_scheme_host_and_port() -> None:
    described = {"body": {}, "output": "text"}
    plain = {"protocol": "http", "base_url": "http://API.example.com:8080/v1/score", "endpoint": described}
    assert lane_identity(Connection.model_validate(plain), "any") == "http:api.example.com:8080"
    openai = {"protocol": "openai", "base_url": "http://api.example.com:8080", "lane_scope": "endpoint"}
    assert lane_identity(Connection.model_validate(openai), "any", KEY) == "http:api.example.com:8080"


def test_a_bare_identifier_is_itself() -> None:
    assert endpoint_id("gpt-4o") == "id:gpt-4o"


@pytest.mark.parametrize(
    "spelling",
    [
        "https://one.example.com/v1/",
        "https://ONE.example.com/v1",
        "https://one.example.com:443/v1",
        "https://one.example.com:443/v1//",
    ],
)
def test_spellings_of_a_url_are_one_url(spelling: str) -> None:
    assert lane_identity(connection("openai", spelling), "big", KEY) == identity("openai")


@pytest.mark.parametrize(
    "other", ["http://one.example.com/v1", "https://one.example.com:8443/v1", f"{URLS[0]}2"]
)
def test_other_urls_are_others(other: str) -> None:
    assert lane_identity(connection("openai", other), "big", KEY) != identity("openai")


def test_a_connection_by_provider_and_one_by_protocol_share_a_limit() -> None:
    for name in ("openai", "anthropic", "gemini", "replicate"):
        unnamed = Connection.model_validate({"protocol": name, "base_url": URLS[0], "api_key_env": "ANOTHER"})
        assert lane_identity(unnamed, "big", KEY) == identity(name)


def test_two_apis_of_one_provider_share_a_limit() -> None:
    responses = connection("openai", protocol="openai_responses")
    assert lane_identity(responses, "big", KEY) == identity("openai")


def test_one_key_at_two_providers_is_two_limits() -> None:
    assert len({identity(name) for name in ("groq", "xai", "cerebras", "gemini")}) == 4
    assert len({identity(name) for name in ("anthropic", "deepseek", "mistral", "together")}) == 4


@pytest.mark.parametrize("header", ["OpenAI-Organization", "openai-project", "X-Goog-User-Project"])
def test_a_key_of_several_accounts_is_distinguished_by_the_header_that_chooses_one(header: str) -> None:
    one, two = (connection("openai", headers={header: account}) for account in ("a", "b"))
    assert lane_identity(one, "big", KEY) != lane_identity(two, "big", KEY)
    plain = connection("openai", headers={"x-trace": "a"})
    assert lane_identity(plain, "big", KEY) == identity("openai")


@pytest.mark.parametrize("provider", ["openai", "anthropic", "groq"])
def test_without_a_key_the_base_url_stands_in(provider: str) -> None:
    def keyless(url: str) -> str:
        return lane_identity(connection(provider, url, auth="none"), "big", KEY)

    assert keyless(URLS[0]) == keyless(URLS[0] + "/") != keyless(URLS[1])
    assert "credential" not in keyless(URLS[0])


def test_until_a_key_is_reported_its_variable_stands_for_it() -> None:
    one, two = (connection("mistral", api_key_env=name) for name in ("ONE", "TWO"))
    assert lane_identity(one, "big") == lane_identity(connection("mistral", api_key_env="ONE"), "small")
    assert lane_identity(one, "big") != lane_identity(two, "big")
    assert lane_identity(one, "big", KEY) == lane_identity(two, "big", KEY)


@pytest.mark.parametrize("scheme", ["sigv4", "google"])
def test_credentials_that_workers_find_around_them_are_one(scheme: str) -> None:
    bare = [connection("bedrock", auth=scheme, api_key_env=None) for _ in range(2)]
    assert lane_identity(bare[0], "big") == lane_identity(bare[1], "big")
    assert lane_identity(bare[0], "big") != lane_identity(connection("bedrock"), "big")


def test_a_configured_scope_counts() -> None:
    whole = connection("openai", lane_scope="connection")
    assert lane_identity(whole, "big", KEY) == lane_identity(whole, "small", KEY)
    apart = connection("mistral", lane_scope="model")
    assert lane_identity(apart, "big", KEY) != lane_identity(apart, "small", KEY)
    assert lane_identity(apart, "big", KEY) != identity("mistral")


names = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=12)


@given(
    provider=st.sampled_from(PROVIDERS),
    one=st.fixed_dictionaries(
        {
            "base_url": st.sampled_from(URLS),
            "region": st.sampled_from(REGIONS),
            "credential": st.sampled_from((KEY, OTHER)),
            "model": names | st.sampled_from(("a b", "a", "b model=a", "a%20b")),
        }
    ),
    changes=st.dictionaries(st.sampled_from(("base_url", "region", "credential", "model")), st.booleans()),
    model=names | st.sampled_from(("a b", "a", "b model=a", "a%20b")),
)
def test_identities_are_equal_where_all_parts_of_the_scope_are_and_only_there(
    provider: str, one: dict[str, str], changes: dict[str, bool], model: str
) -> None:
    pools = {"base_url": URLS, "region": REGIONS, "credential": (KEY, OTHER), "model": (one["model"], model)}
    two = one | {name: pools[name][flag] for name, flag in changes.items()}
    made = [
        lane_identity(
            connection(provider, each["base_url"], each["region"]), each["model"], each["credential"]
        )
        for each in (one, two)
    ]
    agree = all(one[part] == two[part] for part in TABLE[provider])
    assert (made[0] == made[1]) == agree


PROGRAM = """
import json, sys
from fairlane.config.connections.connection import Connection
from fairlane.config.connections.lane_identity import lane_identity, lane_owners
from fairlane.core.redaction import fingerprint
keys = {name: fingerprint(name, b"salt") for name in ("sk-1", "sk-2")}
found = {}
for name, key, given in json.loads(sys.argv[1]):
    found[name] = lane_identity(Connection.model_validate(given), "big", keys[key])
print(json.dumps([found, lane_owners(found, {})]))
"""


def told_by_another_process(seed: str, connections: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, connections],
        env={"PYTHONHASHSEED": seed, "PYTHONPATH": "shared"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout


@pytest.mark.slow
def test_every_process_finds_the_same_whatever_its_hash_seed() -> None:
    connections = json.dumps(
        [
            (f"{name}-{key}-{number}", key, {"provider": name, "base_url": url, "region": "us-east-1"})
            for name in PROVIDERS
            for key in ("sk-1", "sk-2")
            for number, url in enumerate(URLS)
        ]
    )
    shown = {told_by_another_process(seed, connections) for seed in ("0", "1", "random", "random")}
    assert len(shown) == 1
    identities, shared = json.loads(shown.pop())
    assert len(identities) == 4 * len(PROVIDERS)
    assert shared["anthropic-sk-1-1"] == "anthropic-sk-1-0" != shared["anthropic-sk-2-1"]


def test_fingerprints_have_twelve_digits_and_nothing_of_the_key() -> None:
    assert len(KEY) == 12
    assert set(KEY) <= set("0123456789abcdef")
    assert fingerprint("sk-1", b"another salt") != KEY


def test_a_key_that_is_reported_for_one_connection_is_reported_for_all_with_its_variable() -> None:
    known = {
        "a": connection("openai", api_key_env="ONE"),
        "b": connection("openai", api_key_env="ONE"),
        "c": connection("openai", api_key_env="TWO"),
        "d": connection("ollama", api_key_env=None),
    }
    found = credentials_by_connection(known, {"a": KEY})
    assert found == {"a": KEY, "b": KEY, "c": None, "d": None}


@pytest.mark.parametrize(
    ("identities", "before", "expected"),
    [
        ({"a": "1", "b": "1", "c": "2"}, {}, {"a": "a", "b": "a", "c": "c"}),
        # What was chosen stays, also where the configuration has another order now.
        ({"b": "1", "a": "1"}, {"a": "a", "b": "a"}, {"b": "a", "a": "a"}),
        ({"new": "1", "a": "1", "b": "1"}, {"a": "a", "b": "a"}, {"new": "a", "a": "a", "b": "a"}),
        ({"0": "1", "a": "1", "b": "1"}, {"0": "0", "a": "a", "b": "a"}, {"0": "a", "a": "a", "b": "a"}),
        # Who gave its name keeps its lanes, whoever of them has another key now.
        ({"a": "2", "b": "1"}, {"a": "a", "b": "a"}, {"a": "a", "b": "b"}),
        ({"a": "2", "b": "1", "c": "1"}, dict.fromkeys("abc", "a"), {"a": "a", "b": "b", "c": "b"}),
        # The one that gave its name is gone.
        ({"b": "1", "c": "1"}, {"a": "a", "b": "a", "c": "a"}, {"b": "b", "c": "b"}),
        # Two that had lanes of their own are found to be one.
        ({"a": "1", "b": "1"}, {"a": "a", "b": "b"}, {"a": "a", "b": "a"}),
    ],
)
def test_whose_name_lanes_carry_changes_for_those_that_join_or_leave_alone(
    identities: dict[str, str], before: dict[str, str], expected: dict[str, str]
) -> None:
    assert lane_owners(identities, before) == expected


@given(
    st.lists(st.dictionaries(st.sampled_from("abcdef"), st.sampled_from("123"), min_size=1), min_size=1),
    st.randoms(use_true_random=False),
)
def test_after_any_changes_exactly_connections_with_one_identity_share(
    steps: list[dict[str, str]], rng: Any
) -> None:
    chosen: dict[str, str] = {}
    for identities in steps:
        chosen = lane_owners(identities, chosen)
        for one in identities:
            assert chosen[chosen[one]] == chosen[one]  # who gives its name uses those lanes itself
            for other in identities:
                assert (chosen[one] == chosen[other]) == (identities[one] == identities[other])
        shuffled = rng.sample(sorted(identities), len(identities))
        assert lane_owners({name: identities[name] for name in shuffled}, chosen) == chosen


def test_a_connection_that_may_not_join_stays_apart_and_one_that_has_joined_stays() -> None:
    identities = {"a": "1", "b": "1"}
    assert lane_owners(identities, {}, lambda one, other: False) == {"a": "a", "b": "b"}
    assert lane_owners(identities, {"a": "a", "b": "a"}, lambda one, other: False) == {"a": "a", "b": "a"}


@pytest.mark.parametrize(
    ("lane", "expected"), [("b:gpt-4o", "a:gpt-4o"), ("b:x:latest", "a:x:latest"), ("b", "a")]
)
def test_a_lane_has_its_model_under_every_name(lane: str, expected: str) -> None:
    assert lane_under(lane, "a") == expected
