"""The providers that are known by name: what each preset says, and what follows for connections and lanes."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

import pytest
from pydantic import ValidationError

from fairlane.config.connections.connection import Connection
from fairlane.config.connections.presets import (
    OTHER_NAMES,
    PRESETS,
    PROTOCOLS,
    PROVIDER_OF_PROTOCOL,
    PROVIDERS,
)
from fairlane.config.loader import load_settings
from fairlane.config.settings import Settings
from fairlane.model.lane import LaneLimits
from fairlane_workers.providers.limits.table import DIALECTS as LIMIT_DIALECTS
from fairlane_workers.providers.limits.table import dialect_of
from tests.support.documents import ROOT, coded, table
from tests.support.provider_presets import connection

DOCS = ROOT / "docs" / "providers.md"


def settings(lanes: dict[str, Any] | None = None, **connections: dict[str, Any]) -> Settings:
    return Settings.model_validate({"connections": connections, "lanes": lanes or {}})


class TestWhatAPresetSays:
    def test_there_are_twenty_presets(self) -> None:
        assert len(PROVIDERS) == 20
        assert set(PRESETS) == set(PROVIDERS)

    def test_a_provider_with_what_it_needs_is_a_connection(self) -> None:
        for name in PROVIDERS:
            made = connection(name)
            assert made.protocol == PRESETS[name].protocol
            assert urlsplit(made.base_url).hostname
            assert made.scope == ("model" if "model" in made.lane_parts else "connection")

    @pytest.mark.parametrize(
        ("name", "scheme"),
        [
            ("openai", "bearer"),
            ("azure_openai", "api-key"),
            ("anthropic", "x-api-key"),
            ("gemini", "x-goog-api-key"),
            ("vertex", "google"),
            ("bedrock", "sigv4"),
            ("replicate", "bearer"),
        ],
    )
    def test_the_key_goes_as_the_provider_wants_it(self, name: str, scheme: str) -> None:
        assert connection(name).scheme == scheme

    def test_a_key_for_bedrock_goes_as_a_bearer_token(self) -> None:
        assert connection("bedrock", api_key_env="AWS_BEARER_TOKEN_BEDROCK").scheme == "bearer"

    def test_limits_are_read_as_its_host_would_show(self) -> None:
        for name in PROVIDERS:
            named = PRESETS[name].limit_headers
            assert named is None or named in LIMIT_DIALECTS
            assert dialect_of(urlsplit(connection(name).base_url).hostname or "") == (named or "generic")

    @pytest.mark.parametrize("name", ["groq", "deepseek", "qwen", "together", "lepton", "openrouter"])
    def test_a_schema_is_not_asked_of_those_that_refuse_some(self, name: str) -> None:
        assert not connection(name).structured
        assert connection(name, structured_output=True).structured

    @pytest.mark.parametrize("name", ["openai", "azure_openai", "anthropic", "gemini", "xai", "mistral"])
    def test_a_schema_is_asked_of_those_that_take_it(self, name: str) -> None:
        assert connection(name).structured

    def test_a_tool_takes_the_place_of_a_schema_at_bedrock_or_where_it_is_configured(self) -> None:
        for made in (connection("bedrock", region="us-east-1"), connection("groq", structured_output="tool")):
            assert (made.structured, made.tooled) == (False, True)
        assert not connection("openai").tooled
        assert connection("bedrock", region="us-east-1", structured_output=True).structured
        with pytest.raises(ValidationError, match='none of true, false and "tool"') as caught:
            connection("openai", structured_output="tols")
        assert [each["loc"] for each in caught.value.errors()] == [("structured_output",)]

    def test_an_error_map_is_added_to_that_of_the_preset(self) -> None:
        assert connection("qwen", error_map={"418": "invalid"}).error_map == {
            "insufficient_quota": "rate_limited",
            "arrearage": "quota",
            "418": "invalid",
        }
        assert connection("groq", error_map={"498": "timed_out"}).error_map == {"498": "timed_out"}

    def test_given_values_override_the_preset(self) -> None:
        given = {"base_url": "https://proxy.example/v1", "api_key_env": "MINE", "limit_headers": "generic"}
        made = connection("groq", **given)
        assert {name: getattr(made, name) for name in given} == given

    def test_a_known_protocol_is_that_of_a_known_lane(self) -> None:
        assert {preset.protocol for preset in PRESETS.values()} <= set(PROTOCOLS)

    def test_other_names_lead_to_providers(self) -> None:
        assert set(OTHER_NAMES.values()) <= set(PROVIDERS)
        assert not set(OTHER_NAMES) & set(PROVIDERS)


class TestPlaces:
    @pytest.mark.parametrize(
        ("region", "host"),
        [
            ("us-central1", "us-central1-aiplatform.googleapis.com"),
            ("global", "aiplatform.googleapis.com"),
            ("eu", "aiplatform.eu.rep.googleapis.com"),
        ],
    )
    def test_vertex_is_where_its_region_is(self, region: str, host: str) -> None:
        url = connection("vertex", region=region).base_url
        assert url == f"https://{host}/v1/projects/my-project/locations/{region}"

    @pytest.mark.parametrize(("region", "end"), [("eu-west-1", "amazonaws.com"), ("cn-north-1", "com.cn")])
    def test_bedrock_is_where_its_region_is(self, region: str, end: str) -> None:
        url = connection("bedrock", region=region).base_url
        assert url.startswith(f"https://bedrock-runtime.{region}.amazonaws.com")
        assert url.endswith(end)

    def test_an_address_that_is_given_needs_no_place(self) -> None:
        made = Connection.model_validate({"provider": "bedrock", "base_url": "https://vpce-1.example.com"})
        assert made.region is None


class TestLanes:
    def test_what_is_reserved_is_charged_where_the_provider_does_so(self) -> None:
        reserved = {name for name in PROVIDERS if connection(name).charges == "reserved"}
        assert reserved == {"azure_openai", "bedrock", "cerebras"}

    def test_defaults_of_a_lane_are_valid_limits(self) -> None:
        for name in PROVIDERS:
            LaneLimits.model_validate(connection(name).lane_defaults("m"))

    @pytest.mark.parametrize(
        ("model", "factor"),
        [
            ("us.anthropic.claude-sonnet-4-20250514-v1:0", 5),
            ("anthropic.claude-opus-4-1-20250805-v1:0", 5),
            ("global.anthropic.claude-haiku-4-5-20251001-v1:0", 5),
            ("anthropic.claude-3-7-sonnet-20250219-v1:0", 5),
            ("anthropic.claude-3-5-sonnet-20241022-v2:0", 1),
            ("anthropic.claude-3-haiku-20240307-v1:0", 1),
            ("amazon.nova-pro-v1:0", 1),
        ],
    )
    def test_output_of_some_models_of_bedrock_counts_five_times(self, model: str, factor: float) -> None:
        known = settings(b={"provider": "bedrock", "region": "us-east-1"}).limits_of(f"b:{model}")
        assert known is not None
        assert (known.output_factor, known.charge) == (factor, "reserved")

    @pytest.mark.parametrize("name", ["ollama", "vllm", "deepseek"])
    def test_no_rate_is_detected_where_the_provider_limits_calls_in_flight(self, name: str) -> None:
        known = settings(x={"provider": name}).limits_of("x")
        assert known is not None
        assert known.requests_per_minute == 0

    def test_lane_settings_override_the_preset(self) -> None:
        stated = {"a:m": {"charge": "used", "tokens_per_minute": 5}}
        a = {"provider": "azure_openai", "base_url": "https://x.openai.azure.com"}
        known = settings(stated, a=a)
        limits = known.limits_of("a:m")
        assert limits is not None
        assert limits.model_dump(exclude_unset=True) == {
            "charge": "used",
            "cache_reads": "counted",
            "tokens_per_minute": 5,
        }
        other = known.limits_of("a:other")
        assert other is not None
        assert other.charge == "reserved"

    def test_connection_settings_override_the_preset(self) -> None:
        known = settings(c={"provider": "cerebras", "charge": "used"})
        assert known.limits_of("c:m") is None
        plain = {"protocol": "openai", "base_url": "https://x/v1", "charge": "reserved"}
        limits = settings(c=plain).limits_of("c:m")
        assert limits is not None
        assert limits.model_dump(exclude_unset=True) == {"charge": "reserved"}

    def test_a_lane_without_a_table_has_no_known_limits(self) -> None:
        known = settings(c={"protocol": "openai", "base_url": "https://x/v1"})
        assert known.limits_of("c:m") is None
        assert known.limits_of("python:app:f") is None

    def test_what_the_settings_say_of_a_lane_is_returned_as_it_stands(self) -> None:
        known = settings(
            {"c:m": {"max_concurrency": 3}}, c={"protocol": "openai", "base_url": "https://x/v1"}
        )
        assert known.limits_of("c:m") is known.lanes["c:m"]

    def test_a_servers_own_lane_is_known_by_its_connections(self) -> None:
        there = {
            "protocol": "openai",
            "base_url": "http://h:1/v1",
            "lane_scope": "endpoint",
            "charge": "reserved",
        }
        limits = settings(c=there).limits_of("http:h:1")
        assert limits is not None
        assert limits.charge == "reserved"

    def test_a_protocol_that_one_provider_alone_speaks_has_its_habits(self) -> None:
        made = Connection.model_validate({"protocol": "bedrock", "base_url": "https://b", "region": "r-1"})
        assert made.charges == "reserved"
        assert set(PROVIDER_OF_PROTOCOL.values()) == {
            name for name in PROVIDERS if name == PRESETS[name].protocol
        } - {"openai"}


class TestMistakes:
    @pytest.mark.parametrize(
        ("name", "meant"), [("gorq", "groq"), ("azure", "azure_openai"), ("Grok", "xai")]
    )
    def test_an_unknown_provider_is_reported_with_the_one_meant(self, name: str, meant: str) -> None:
        with pytest.raises(ValidationError) as caught:
            Connection.model_validate({"provider": name})
        (shown,) = caught.value.errors()
        assert shown["loc"] == ("provider",)
        assert f"Did you mean {meant!r}?" in shown["ctx"]["remedy"]

    def test_a_provider_unlike_any_is_reported_where_they_are_listed(self) -> None:
        with pytest.raises(ValidationError) as caught:
            Connection.model_validate({"provider": "acme"})
        assert caught.value.errors()[0]["ctx"]["remedy"].startswith("`fairlane connections --providers`")

    def test_places_that_are_missing_are_all_reported(self) -> None:
        with pytest.raises(ValidationError) as caught:
            Connection.model_validate({"provider": "vertex"})
        assert [each["loc"] for each in caught.value.errors()] == [("region",), ("project",)]

    def test_an_address_that_is_missing_is_reported_with_an_example(self) -> None:
        with pytest.raises(ValidationError) as caught:
            Connection.model_validate({"provider": "azure_openai"})
        (shown,) = caught.value.errors()
        assert shown["loc"] == ("base_url",)
        assert 'base_url = "https://example.openai.azure.com"' in shown["ctx"]["remedy"]

    @pytest.mark.parametrize(
        "headers",
        [
            {"Authorization": "hunter2"},
            {"X-Goog-Api-Key": "hunter2"},
            {"proxy-authorization": "hunter2"},
            {"x-auth-token": "hunter2"},
            {"x-custom": "Bearer hunter2"},
        ],
    )
    def test_a_key_in_headers_is_refused_and_not_shown(self, headers: dict[str, str]) -> None:
        with pytest.raises(ValidationError) as caught:
            connection("groq", headers=headers)
        (shown,) = caught.value.errors()
        assert shown["loc"] == ("headers", *headers)
        assert "api_key_env" in shown["ctx"]["remedy"]
        assert "hunter2" not in str(caught.value)

    @pytest.mark.parametrize("header", ["Host", "content-length", "Transfer-Encoding"])
    def test_a_header_that_frames_the_request_is_refused(self, header: str) -> None:
        with pytest.raises(ValidationError, match="the HTTP client"):
            connection("groq", headers={header: "x"})

    @pytest.mark.parametrize("proxy", ["http://me:hunter2@proxy:3128", "http://hunter2@proxy:3128"])
    def test_a_password_in_a_proxys_address_is_refused_and_not_shown(self, proxy: str) -> None:
        with pytest.raises(ValidationError) as caught:
            connection("groq", proxy=proxy)
        assert caught.value.errors()[0]["loc"] == ("proxy",)
        assert "hunter2" not in str(caught.value)

    def test_kinds_of_errors_are_read_in_lower_case(self) -> None:
        assert connection("xai", error_map={"Slow_Down": "overloaded"}).error_map == {
            "slow_down": "overloaded"
        }


class TestDocuments:
    def test_the_guides_table_has_every_provider_as_the_code_has_it(self) -> None:
        rows = table(DOCS, "provider", "write")
        assert [coded(row["write"])[0] for row in rows] == [f'provider = "{name}"' for name in PROVIDERS]
        for name, row in zip(PROVIDERS, rows, strict=True):
            preset = PRESETS[name]
            assert row["provider"] == preset.title
            fields = list(preset.address_fields) if preset.base_url else ["base_url"]
            assert coded(row["write"])[1:] == fields, name
            assert coded(row["key"]) == ([preset.api_key_env] if preset.api_key_env else []), name
            assert row["lanes by"] == ", ".join(preset.lane), name
            assert row["charges"] == preset.charge, name

    def test_the_guides_table_has_every_protocol(self) -> None:
        listed = [coded(row["`protocol`"])[0] for row in table(DOCS, "`protocol`", "a call is")]
        assert sorted(listed) == sorted(PROTOCOLS)

    def test_a_configuration_by_names_alone_is_read_from_a_file(self, tmp_path: Any) -> None:
        named = [name for name in PROVIDERS if PRESETS[name].base_url and not PRESETS[name].address_fields]
        file = tmp_path / "fairlane.toml"
        file.write_text("".join(f"[connections.{n}]\nprovider = {json.dumps(n)}\n" for n in named))
        assert list(load_settings(file, {}).connections) == named
