"""Settings: what wins over what, and the message for a mistake."""

from __future__ import annotations

import os
import threading
import tomllib
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kombu.connection import Connection as BrokerConnection
from pydantic import ValidationError

from fairlane.config import environment, loader
from fairlane.config.environment import child_environment, process_environment
from fairlane.config.keys import ENTRY, Key, all_keys
from fairlane.config.loader import load_secrets, load_settings
from fairlane.config.problems import ConfigurationWarning
from fairlane.config.settings import Settings
from fairlane.core.errors import ConfigurationError

WHOLE = """
[redis]
url = "redis://state:6379/1"
deployment = "blue"
[connections.OpenAI]
protocol = "openai"
base_url = "https://api.openai.com/v1"
api_key_env = "OPENAI_API_KEY"
[connections.claude]
protocol = "anthropic"
base_url = "https://api.anthropic.com"
lane_scope = "connection"
[lanes."OpenAI:gpt-4o"]
requests_per_minute = 10000
max_concurrency = 200
[lanes.claude]
tokens_per_minute = 400000
[teams.search]
weight = 3
[scheduler]
max_in_flight = 50
"""

Write = Callable[[str], Path]


def is_number(key: Key) -> bool:
    """Whether a key is a number, or one that may be left out."""
    kinds = get_args(key.field.annotation) or (key.field.annotation,)
    return int in kinds or float in kinds


NUMBERS = [key for key in all_keys() if is_number(key)]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(text: str) -> Path:
        file = tmp_path / "fairlane.toml"
        file.write_text(text, encoding="utf-8")
        return file

    return write_file


def refused(file: Path | None = None, environ: dict[str, str] | None = None) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(file, environ or {})
    return caught.value


class TestTheFileOfVariables:
    """`.env` in the working directory."""

    @pytest.fixture(autouse=True)
    def here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        for name in ("FAIRLANE_TEAM", "FAIRLANE_REDIS_URL", "FAIRLANE_REDIS__URL", "SOME_KEY"):
            monkeypatch.delenv(name, raising=False)

    def test_its_variables_count_where_the_environment_lacks_them(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Path(".env").write_text("# ours\nFAIRLANE_TEAM=search\nexport FAIRLANE_REDIS__URL='redis://file/0'\n")
        monkeypatch.setenv("FAIRLANE_REDIS__URL", "redis://environment/0")
        settings = load_settings()
        assert (settings.team, settings.redis.url) == ("search", "redis://environment/0")

    @pytest.mark.parametrize("ours", ["FAIRLANE_REDIS_URL", "FAIRLANE_REDIS__URL"])
    @pytest.mark.parametrize("other", ["FAIRLANE_REDIS_URL", "FAIRLANE_REDIS__URL"])
    def test_a_url_of_the_environment_counts_by_either_of_its_names(
        self, monkeypatch: pytest.MonkeyPatch, ours: str, other: str
    ) -> None:
        Path(".env").write_text(f"{other}=redis://file/0\n")
        monkeypatch.setenv(ours, "redis://environment/0")
        assert load_settings().redis.url == "redis://environment/0"
        assert child_environment({}).get(other, "redis://environment/0") == "redis://environment/0"

    def test_it_may_hold_keys_which_children_inherit(self) -> None:
        Path("fairlane.toml").write_text('[connections.a]\nprovider = "groq"\napi_key_env = "SOME_KEY"')
        Path(".env").write_text('SOME_KEY="sk-1"')
        assert load_secrets(load_settings()).keys["a"].get_secret_value() == "sk-1"
        assert child_environment({})["SOME_KEY"] == "sk-1"

    def test_dotenv_values_are_not_expanded(self) -> None:
        Path(".env").write_text("SOME_KEY=pa${x}ss$word\nFAIRLANE_TEAM='${SOME_KEY}'\n")
        environment = process_environment()
        assert (environment["SOME_KEY"], environment["FAIRLANE_TEAM"]) == ("pa${x}ss$word", "${SOME_KEY}")

    def test_a_line_that_is_no_variable_is_named_once(self) -> None:
        Path(".env").write_text('\nSOME_KEY=k\n\nno variable\nFAIRLANE_TEAM="search\n')
        with pytest.warns(ConfigurationWarning) as caught:
            assert process_environment()["SOME_KEY"] == "k"
        lines = [str(each.message).partition(" is ignored")[0] for each in caught]
        assert lines == [f"{Path.cwd() / '.env'}, line {number}," for number in (4, 5)]
        assert process_environment()["SOME_KEY"] == "k"

    def test_a_pipe_is_read_once_and_not_by_children(self, monkeypatch: pytest.MonkeyPatch) -> None:
        os.mkfifo(".env")
        writer = threading.Thread(target=lambda: Path(".env").write_text("SOME_KEY=k"))
        writer.start()
        assert [process_environment()["SOME_KEY"] for _ in range(2)] == ["k", "k"]
        writer.join()
        inherited = child_environment({})
        assert inherited["SOME_KEY"] == "k"
        environment._text_of_pipe.cache_clear()  # as in a new process
        for name, value in inherited.items():
            monkeypatch.setenv(name, value)
        assert process_environment()["SOME_KEY"] == "k"

    def test_a_directory_is_reported_unless_it_is_a_virtual_environment(self) -> None:
        Path(".env").mkdir()
        with pytest.warns(ConfigurationWarning, match="neither a file nor a pipe"):
            process_environment()
        Path(".env/pyvenv.cfg").touch()
        process_environment()

    def test_one_that_cannot_be_read_is_reported(self) -> None:
        Path(".env").write_bytes(b"A=\xff\xfe")
        with pytest.raises(ConfigurationError, match=r"\.env: cannot be read"):
            load_settings()


class TestWhereSettingsComeFrom:
    def test_without_file_and_variables_the_defaults_hold(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert load_settings(environ={}) == Settings()

    def test_a_whole_file_is_read(self, write: Write) -> None:
        file = write(WHOLE)
        settings = load_settings(file, {})
        assert settings.redis.url == "redis://state:6379/1"
        assert settings.lanes["OpenAI:gpt-4o"].requests_per_minute == 10_000
        assert settings.teams["search"].weight == 3
        assert settings.config_file == str(file)

    def test_the_file_in_the_working_directory_is_found(
        self, write: Write, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = write('team = "here"')
        monkeypatch.chdir(file.parent)
        assert load_settings(environ={}).team == "here"

    def test_a_variable_names_the_file(self, write: Write) -> None:
        assert load_settings(environ={"FAIRLANE_CONFIG": str(write('team = "named"'))}).team == "named"

    def test_an_explicit_path_wins_over_the_variable(self, write: Write) -> None:
        environ = {"FAIRLANE_CONFIG": "/nowhere.toml"}
        assert load_settings(write('team = "explicit"'), environ).team == "explicit"

    def test_a_variable_wins_over_the_file_and_leaves_its_neighbours(self, write: Write) -> None:
        settings = load_settings(write(WHOLE), {"FAIRLANE_REDIS__URL": "redis://other/0"})
        assert (settings.redis.url, settings.redis.deployment) == ("redis://other/0", "blue")

    def test_an_argument_wins_over_a_variable(self, write: Write) -> None:
        environ = {"FAIRLANE_TEAM": "variable", "FAIRLANE_REDIS__URL": "redis://other/0"}
        settings = load_settings(write(WHOLE), environ, team="argument", redis={"url": None})
        assert (settings.team, settings.redis.url) == ("argument", "redis://other/0")

    def test_a_byte_order_mark_is_no_part_of_the_file(self, write: Write) -> None:
        assert load_settings(write('\ufeffteam = "a"'), {}).team == "a"

    def test_settings_are_frozen(self) -> None:
        with pytest.raises(ValidationError):
            Settings().team = "other"  # type: ignore[misc]


class TestVariables:
    @pytest.mark.parametrize("key", all_keys(), ids=lambda key: key.variable)
    def test_every_key_has_a_variable_that_is_known(self, key: Key) -> None:
        variable = key.variable.replace(ENTRY.upper(), "X")
        try:
            load_settings(environ={variable: "\0"})
        except ConfigurationError as error:
            assert "unknown key" not in str(error)  # noqa: PT017  a value may be refused, the name may not

    def test_numbers_and_lists_are_read_from_text(self) -> None:
        environ = {
            "FAIRLANE_SCHEDULER__MAX_IN_FLIGHT": "7",
            "FAIRLANE_WORKER__SLOTS": "3",
            "FAIRLANE_WORKER__LANES": "sim:fast, sim:slow",
            "FAIRLANE_CONNECTIONS__SIM__PROTOCOL": "openai",
            "FAIRLANE_CONNECTIONS__SIM__BASE_URL": "http://127.0.0.1:1",
            "FAIRLANE_CONNECTIONS__SIM__STREAM": "false",
        }
        settings = load_settings(environ=environ)
        assert settings.scheduler.max_in_flight == 7
        assert settings.worker.slots == 3
        assert settings.worker.lanes == ("sim:fast", "sim:slow")
        assert settings.connections["sim"].stream is False

    def test_names_in_the_file_are_matched_without_case_and_punctuation(self, write: Write) -> None:
        environ = {
            "FAIRLANE_LANES__OPENAI_GPT_4O__MAX_CONCURRENCY": "9",
            "FAIRLANE_CONNECTIONS__OPENAI__BASE_URL": "https://proxy.example/v1",
        }
        settings = load_settings(write(WHOLE), environ)
        assert settings.lanes["OpenAI:gpt-4o"].max_concurrency == 9
        assert settings.lanes["OpenAI:gpt-4o"].requests_per_minute == 10_000
        assert settings.connections["OpenAI"].base_url == "https://proxy.example/v1"

    @pytest.mark.parametrize(
        ("in_file", "expected"),
        [("", {"openai-project": "p-2"}), ('[connections.OpenAI.headers]\nOpenAI-Project = "p-1"', None)],
    )
    def test_a_variables_underscores_are_hyphens_in_a_headers_name(
        self, write: Write, in_file: str, expected: dict[str, str] | None
    ) -> None:
        environ = {"FAIRLANE_CONNECTIONS__OPENAI__HEADERS__OPENAI_PROJECT": "p-2"}
        settings = load_settings(write(f"{WHOLE}\n{in_file}"), environ)
        assert settings.connections["OpenAI"].headers == (expected or {"OpenAI-Project": "p-2"})

    def test_an_error_map_may_come_from_variables(self, write: Write) -> None:
        environ = {
            "FAIRLANE_CONNECTIONS__OPENAI__ERROR_MAP__SLOW_DOWN": "overloaded",
            "FAIRLANE_CONNECTIONS__OPENAI__ERROR_MAP__418": "permanent",
        }
        settings = load_settings(write(WHOLE), environ)
        assert settings.connections["OpenAI"].error_map == {"slow_down": "overloaded", "418": "permanent"}

    def test_a_provider_may_be_named_by_a_variable(self) -> None:
        settings = load_settings(environ={"FAIRLANE_CONNECTIONS__FAST__PROVIDER": "groq"})
        assert settings.connections["fast"].base_url == "https://api.groq.com/openai/v1"

    def test_the_short_name_of_the_redis_url_works_and_yields_to_the_full_one(self) -> None:
        assert load_settings(environ={"FAIRLANE_REDIS_URL": "redis://a/0"}).redis.url == "redis://a/0"
        both = {"FAIRLANE_REDIS_URL": "redis://a/0", "FAIRLANE_REDIS__URL": "redis://b/0"}
        with pytest.warns(ConfigurationWarning, match="FAIRLANE_REDIS_URL is ignored"):
            assert load_settings(environ=both).redis.url == "redis://b/0"
        same = dict.fromkeys(both, "redis://a/0")
        assert load_settings(environ=same).redis.url == "redis://a/0"

    def test_an_empty_variable_counts_as_not_set(self, write: Write) -> None:
        environ = {"FAIRLANE_REDIS__URL": "", "FAIRLANE_REDIS_URL": "", "FAIRLANE_CONFIG": ""}
        assert load_settings(write(WHOLE), environ).redis.url == "redis://state:6379/1"

    @pytest.mark.parametrize(
        "variable",
        [
            "FAIRLANE_REDIS_SERVICE_HOST",
            "FAIRLANE_REDIS_SERVICE_PORT_API",
            "FAIRLANE_REDIS_PORT_6379_TCP_ADDR",
        ],
    )
    def test_what_kubernetes_adds_is_ignored(self, variable: str) -> None:
        load_settings(environ={variable: "10.0.0.1", "FAIRLANE_REDIS_PORT": "tcp://10.0.0.1:6379"})

    def test_a_port_that_a_person_set_is_not_taken_for_kubernetes(self) -> None:
        with pytest.warns(ConfigurationWarning, match="FAIRLANE_REDIS_PORT is ignored"):
            load_settings(environ={"FAIRLANE_REDIS_PORT": "6379"})

    def test_a_variable_that_holds_a_connections_key_is_not_unknown(self, write: Write) -> None:
        file = write(WHOLE.replace("OPENAI_API_KEY", "FAIRLANE_OPENAI_KEY"))
        load_settings(file, {"FAIRLANE_OPENAI_KEY": "sk-1"})

    def test_a_variable_that_holds_a_proxys_password_is_not_unknown(self, write: Write) -> None:
        file = write('[connections.a]\nprovider = "groq"\nproxy_credentials_env = "FAIRLANE_PROXY"')
        load_settings(file, {"FAIRLANE_PROXY": "me:hunter2"})


class TestMistakes:
    def test_an_unknown_key_names_path_file_and_what_was_meant(self, write: Write) -> None:
        file = write(WHOLE.replace("max_concurrency", "max_concurency"))
        error = refused(file)
        assert error.field == 'lanes."OpenAI:gpt-4o".max_concurency'
        assert str(file) in str(error)
        assert "did you mean 'max_concurrency'?" in error.remedy

    def test_an_unknown_section_is_reported_with_what_was_meant(self, write: Write) -> None:
        assert "did you mean 'connections'?" in str(refused(write("[conections.a]")))

    def test_a_key_in_the_wrong_section_is_reported_where_it_belongs(self, write: Write) -> None:
        error = refused(write("[worker]\nmax_in_flight = 3"))
        assert "did you mean 'scheduler.max_in_flight'?" in str(error)

    def test_a_key_like_no_other_is_answered_with_all_there_are(self, write: Write) -> None:
        assert "known here: calls, format, level" in str(refused(write("[log]\nzzzz = 1")))

    @pytest.mark.parametrize(
        ("variable", "meant"),
        [
            ("FAIRLANE_REDIS__URLL", "FAIRLANE_REDIS__URL"),
            ("FAIRLANE_SCHEDULER_MAX_IN_FLIGHT", "FAIRLANE_SCHEDULER__MAX_IN_FLIGHT"),
            ("FAIRLANE_CONFIG_FILE", "FAIRLANE_CONFIG"),
            ("FAIRLANE_TEAMS__SEARCH__WIGHT", "FAIRLANE_TEAMS__SEARCH__WEIGHT"),
            ("FAIRLANE_CONNECTIONS__A__HEADER__X_ORG", "FAIRLANE_CONNECTIONS__A__HEADERS__X_ORG"),
        ],
    )
    def test_an_unknown_variable_is_a_warning_with_what_was_meant(self, variable: str, meant: str) -> None:
        with pytest.warns(ConfigurationWarning) as caught:
            load_settings(environ={variable: "secret-value"})
        (said,) = (str(each.message) for each in caught)
        assert said.startswith(f"{variable} is ignored")
        assert f"did you mean {meant!r}?" in said
        assert "secret-value" not in said

    def test_where_settings_came_from_cannot_be_set(self, write: Write) -> None:
        assert refused(write('config_file = "x"')).field == "config_file"

    def test_a_wrong_value_names_field_value_and_default(self, write: Write) -> None:
        error = refused(write("[scheduler]\nmax_in_flight = 0"))
        assert (error.field, error.value) == ("scheduler.max_in_flight", 0)
        assert "Default: 1000" in error.remedy

    def test_a_wrong_variable_is_reported_to_come_from_the_environment(self) -> None:
        assert "in the environment (got 'many')" in str(refused(environ={"FAIRLANE_WORKER__SLOTS": "many"}))

    def test_what_is_missing_is_reported(self, write: Write) -> None:
        error = refused(write('[connections.a]\nprotocol = "openai"'))
        assert (error.field, "is missing" in str(error)) == ("connections.a.base_url", True)

    def test_a_value_where_a_section_belongs_is_reported(self, write: Write) -> None:
        assert "[teams.search]" in refused(write("[teams]\nsearch = 3")).remedy

    @pytest.mark.parametrize("section", ['connections."a:b"', 'teams."a b"'])
    def test_a_name_that_would_break_keys_is_refused(self, write: Write, section: str) -> None:
        assert "not a name that can be used" in str(refused(write(f"[{section}]")))

    def test_not_a_number_is_no_limit(self, write: Write) -> None:
        assert refused(write("[worker]\nbeat_seconds = nan")).field == "worker.beat_seconds"

    @pytest.mark.parametrize("key", NUMBERS, ids=lambda key: ".".join(key.path))
    def test_every_number_has_a_least_and_a_most(self, write: Write, key: Key) -> None:
        bounds = key.field.metadata
        assert any(hasattr(each, "ge") or hasattr(each, "gt") for each in bounds)
        assert any(hasattr(each, "le") for each in bounds), (
            "Redis, Lua or a calendar fails beyond some number"
        )

    @pytest.mark.parametrize(
        "setting",
        [
            "scheduler.leader_lease_seconds = 1e15",
            "scheduler.finished_ttl_seconds = 1e300",
            f"scheduler.limits.spec_bytes = {10**20}",
            f"audit.keep = {10**20}",
            "archive.hold_seconds = 1e300",
            'lanes."sim:fast".requests_per_minute = 1e300',
        ],
    )
    def test_a_number_that_would_stop_the_deployment_is_refused(self, write: Write, setting: str) -> None:
        shown = str(refused(write(setting)))
        assert "must be less than or equal to" in shown
        assert setting.split(" =")[0] in shown

    def test_all_mistakes_are_reported_at_once(self, write: Write) -> None:
        with pytest.warns(ConfigurationWarning, match="FAIRLANE_TEAMM"):
            shown = str(refused(write("[log]\nlevel = 'loud'\nformatt = 1"), {"FAIRLANE_TEAMM": "a"}))
        assert len(shown.splitlines()) == 2
        assert all(field in shown for field in ("log.level", "log.formatt"))

    def test_broken_toml_is_reported_with_its_line_but_not_its_value(self, write: Write) -> None:
        error = refused(write("[redis]\nurl = redis://:hunter2@host"))
        assert "line 2" in str(error)
        assert error.value == "url"
        assert "hunter2" not in str(error)

    def test_a_variable_of_nested_brackets_is_a_configuration_error(self) -> None:
        with pytest.raises(ConfigurationError, match="there is no connection"):
            load_settings(environ={"FAIRLANE_WORKER__LANES": "[" * 100_000})

    @pytest.mark.parametrize(
        "text", ["[redis", "a = [", "=", "\n\n]", pytest.param(f"a = {'[' * 10_000}", id="deep")]
    )
    def test_any_broken_toml_is_a_configuration_error(self, write: Write, text: str) -> None:
        assert "is not TOML" in str(refused(write(text)))

    @pytest.mark.parametrize(
        ("content", "problem"),
        [('team = "a"'.encode("utf-16"), "is UTF-16, not UTF-8"), (b"team = '\xe9'", "is not UTF-8")],
    )
    def test_a_file_in_another_encoding_is_reported(
        self, content: bytes, problem: str, tmp_path: Path
    ) -> None:
        file = tmp_path / "fairlane.toml"
        file.write_bytes(content)
        assert str(refused(file)) == f"fairlane.toml: {problem} (got {str(file)!r}). Save it as UTF-8."

    def test_a_file_that_is_not_there_is_reported(self, tmp_path: Path) -> None:
        assert "no such file" in str(refused(tmp_path / "none.toml"))
        assert refused(environ={"FAIRLANE_CONFIG": str(tmp_path)}).field == "FAIRLANE_CONFIG"

    @pytest.mark.parametrize(
        "text",
        [
            "[redis]\nurl = 'http://:hunter2@host'",
            "[connections.a]\nprotocol = 'openai'\nbase_url = 'ftp://u:hunter2@host'",
            "[connections.a]\nprotocol = 'openai'\nbase_url = 'http://h'\napi_key = 'hunter2'",
            "[connections.a]\nprotocol = 'openai'\nbase_url = 'http://h'\napi_key_env = 'sk-hunter2'",
            "[connections.a]\nprovider = 'groq'\nheaders = {Authorization = 'Bearer hunter2'}",
            "[connections.a]\nprovider = 'groq'\nheaders = {x-mine = 'Bearer hunter2'}",
            "[connections.a]\nprovider = 'groq'\nproxy = 'http://hunter2@proxy'",
            "[connections.a]\nprovider = 'groq'\nproxy_credentials_env = 'me:hunter2'",
        ],
    )
    def test_no_message_shows_a_credential(self, write: Write, text: str) -> None:
        assert "hunter2" not in str(refused(write(text)))


class TestProviders:
    @pytest.mark.parametrize(
        ("given", "field", "said"),
        [
            ('provider = "gorq"', "provider", "Did you mean 'groq'?"),
            ('provider = "bedrock"', "region", "Amazon Bedrock needs it"),
            ('provider = "bedrock"', "region", 'Write region = "us-east-1", or a base_url.'),
            ('provider = "vertex"\nregion = "global"', "project", "Google Vertex AI needs it"),
            ('provider = "azure_openai"', "base_url", "https://example.openai.azure.com"),
            ('provider = "bedrock"\nregion = "US East"', "region", "must match pattern"),
            ('provider = "groq"\nheaders = {Cookie = "a"}', "headers.Cookie", "would carry a key"),
            ('provider = "groq"\nproxy = "http://a:b@c"', "proxy", "proxy_credentials_env"),
            ('provider = "groq"\nerror_map = {x = "bad"}', "error_map.x", "must be 'rate_limited'"),
        ],
    )
    def test_what_is_wrong_is_reported_with_its_key_and_the_remedy(
        self, write: Write, given: str, field: str, said: str
    ) -> None:
        file = write(f"[connections.a]\n{given}")
        error = refused(file)
        assert error.field == f"connections.a.{field}"
        assert said in str(error)
        assert str(file) in str(error)
        assert len(str(error).splitlines()) == 1

    def test_the_variable_of_a_key_is_that_of_the_provider(self, write: Write) -> None:
        settings = load_settings(write('[connections.a]\nprovider = "groq"'), {})
        assert load_secrets(settings, {}).missing == {"a": "GROQ_API_KEY"}
        assert load_secrets(settings, {"GROQ_API_KEY": "gsk-1"}).keys["a"].get_secret_value() == "gsk-1"


class TestContradictions:
    def test_a_lane_of_no_connection_is_reported_with_the_one_meant(self, write: Write) -> None:
        error = refused(write(WHOLE.replace('lanes."OpenAI:', 'lanes."OpenAl:')))
        assert error.field == 'lanes."OpenAl:gpt-4o"'
        assert "did you mean 'OpenAI'?" in error.remedy

    def test_a_connections_lane_where_each_model_has_its_own_is_refused(self, write: Write) -> None:
        assert '"OpenAI:<model>"' in refused(write(WHOLE + "[lanes.OpenAI]")).remedy

    def test_a_models_lane_where_all_models_share_one_is_refused(self, write: Write) -> None:
        assert 'Write "claude" alone' in refused(write(WHOLE + '[lanes."claude:opus"]')).remedy

    @pytest.mark.parametrize("model", ["*", "gpt-*", "gpt-4?"])
    def test_a_pattern_is_no_lane(self, write: Write, model: str) -> None:
        error = refused(write(f'{WHOLE}[lanes."OpenAI:{model}"]\nmax_concurrency = 2\n'))
        assert error.field == f'lanes."OpenAI:{model}"'
        assert "a lane's name is no pattern" in str(error)

    @pytest.mark.parametrize(
        "pattern", ["OpenAI:*", "OpenAI:gpt-*", "Open*", "*", "cl?ude", "*:gpt-4?", "python:*"]
    )
    def test_a_worker_may_be_bound_to_a_pattern(self, write: Write, pattern: str) -> None:
        settings = load_settings(write(WHOLE), {"FAIRLANE_WORKER__LANES": pattern})
        assert settings.worker.lanes == (pattern,)

    @pytest.mark.parametrize("pattern", ["openai:*", "claude:*", "OpenAI?", "x*"])
    def test_a_pattern_that_fits_no_lane_is_refused(self, write: Write, pattern: str) -> None:
        assert refused(write(WHOLE), {"FAIRLANE_WORKER__LANES": pattern}).field == "worker.lanes"

    @given(st.text("OpenAIcld:*?x", min_size=1, max_size=12), st.text("OpenAI:x", min_size=1, max_size=9))
    def test_a_pattern_is_accepted_where_it_fits_a_lane(self, pattern: str, model: str) -> None:
        lanes = [f"OpenAI:{model}", "claude"]
        settings = Settings.model_validate(tomllib.loads(WHOLE))
        if set(pattern) & {"*", "?"} and any(fnmatchcase(lane, pattern) for lane in lanes):
            assert loader._fits(settings, pattern)

    def test_a_servers_lane_is_written_with_its_address(self, write: Write) -> None:
        there = '[connections.a]\nprotocol = "openai"\nbase_url = "http://h:1/v1"\nlane_scope = "endpoint"\n'
        load_settings(write(there + '[lanes."http:h:1"]\nmax_concurrency = 2'), {})
        assert 'Write "http:h:1"' in refused(write(there + "[lanes.a]")).remedy

    def test_a_worker_cannot_be_bound_to_a_lane_that_cannot_be(self, write: Write) -> None:
        assert refused(write(WHOLE), {"FAIRLANE_WORKER__LANES": "nobody:x"}).field == "worker.lanes"

    def test_a_beat_that_would_bury_the_living_is_refused(self) -> None:
        error = refused(environ={"FAIRLANE_WORKER__BEAT_SECONDS": "4"})
        assert error.field == "scheduler.worker_timeout_seconds"


class TestSecrets:
    def test_a_key_is_read_from_its_variable_and_not_shown(self, write: Write) -> None:
        settings = load_settings(write(WHOLE), {})
        secrets = load_secrets(settings, {"OPENAI_API_KEY": " sk-1\n"})
        assert secrets.keys["OpenAI"].get_secret_value() == "sk-1"
        assert secrets.missing == {}
        assert "sk-1" not in repr(secrets)

    @pytest.mark.parametrize("environ", [{}, {"OPENAI_API_KEY": " "}])
    def test_a_key_that_is_not_there_is_named(self, write: Write, environ: dict[str, str]) -> None:
        secrets = load_secrets(load_settings(write(WHOLE), {}), environ)
        assert (dict(secrets.keys), secrets.missing) == ({}, {"OpenAI": "OPENAI_API_KEY"})

    def test_what_a_proxy_wants_to_see_is_read_and_not_shown(self, write: Write) -> None:
        file = write('[connections.a]\nprovider = "groq"\nproxy_credentials_env = "PROXY_LOGIN"')
        secrets = load_secrets(load_settings(file, {}), {"PROXY_LOGIN": "me:hunter2\n"})
        assert secrets.proxies["a"].get_secret_value() == "me:hunter2"
        assert "hunter2" not in repr(secrets)


class TestWhatSettingsAnswer:
    def test_the_broker_is_the_state_redis_unless_another_is_named(self) -> None:
        assert Settings().broker_url == Settings().redis.url
        other = load_settings(environ={"FAIRLANE_CELERY__BROKER_URL": "amqp://host"})
        assert other.broker_url == "amqp://host"

    @given(database=st.integers(0, 15), password=st.sampled_from(["", ":pw@"]))
    def test_a_unix_socket_is_spelled_so_that_the_broker_finds_it(self, database: int, password: str) -> None:
        settings = load_settings(environ={}, redis={"url": f"unix://{password}/run/r.sock?db={database}"})
        assert settings.broker_url == f"redis+socket://{password}/run/r.sock?virtual_host={database}"
        assert BrokerConnection(settings.broker_url).transport_cls == "redis"

    def test_a_models_lane_follows_its_connections_scope(self, write: Write) -> None:
        settings = load_settings(write(WHOLE), {})
        assert settings.lane_of("OpenAI:gpt-4o") == "OpenAI:gpt-4o"
        assert settings.lane_of("claude:opus") == "claude"
        with pytest.raises(KeyError):
            settings.lane_of("nobody:x")
