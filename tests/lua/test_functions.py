"""A function of the server does what its script does, keeps nothing, and is loaded if missing."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

import fakeredis
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.exceptions import NoPermissionError, NoScriptError, OutOfMemoryError, ResponseError

from fairlane.model.decision import Defer
from fairlane.model.ending import Completion
from fairlane.model.job import Claim, Feedback, JobState
from fairlane.model.tokens import Usage
from fairlane.store.functions import all_functions, keep_functions
from fairlane.store.preludes import Preludes
from fairlane.store.script import Call, Functions, is_missing, merged
from fairlane.store.verb_text import FUNCTION_PREFIX
from fairlane.store.verbs import script
from fairlane_workers.execution.batcher import Batcher
from tests.lua.test_merged_calls import RECORD, REPORT, near, reports
from tests.support.contents import read_contents
from tests.support.deployment import LEASE_MS, Deployment
from tests.support.redis import emptied

LUA = files("fairlane.store") / "lua"
PRELUDE_FUNCTION = re.compile(
    r"^(?:local )?function [\w.]+\((?:[^\n]* end$|.*?^end$)", re.MULTILINE | re.DOTALL
)

REGISTER = "redis.register_function('{0}', function() return 1 end)"
FOREIGN = f"#!lua name=theirs\n{REGISTER.format('theirs')}"
OLDER = f"#!lua name={FUNCTION_PREFIX}old\n{REGISTER.format(FUNCTION_PREFIX + 'old')}"


class Scripts(Functions):
    """Runs everything as scripts, as on a server that keeps no functions."""

    def __init__(self) -> None:
        super().__init__()
        self._kept = False


def names_of(verb: str, *, many: bool = False) -> str:
    form = script(verb).many if many else script(verb)
    assert form is not None
    assert form.function is not None
    return form.function.name


def acl(redis: Any, *words: str) -> None:
    redis.execute_command("ACL", *words)


def libraries(redis: Redis) -> set[str]:
    return {each[1].decode() for each in redis.function_list("*")}


@pytest.fixture
def bare(real_server: Redis) -> Iterator[Redis]:
    """The real server without a function, and with those of this version afterwards."""
    redis = emptied(real_server)
    redis.function_flush()
    yield redis
    redis.function_flush()
    keep_functions(redis)


def play(
    redis: Redis, how: type[Functions], feedback: Sequence[Any], waited_ms: int, *, together: bool
) -> tuple[Any, Any]:
    """Grants, claims and reports; the replies, and what Redis has after them."""
    emptied(redis)
    d = Deployment(redis)
    functions = d.functions = how()
    d.lanes._functions = functions
    claims, ends = reports(d, feedback, waited_ms)
    replies = []
    for calls in (claims, ends):
        for call in [merged(calls)] if together else calls:
            replies.append(call.replies(functions.run(redis, call)))
        d.advance(300)
    retried = d.queued_lane(jobs=2, run="r2", requests_per_minute=600)
    for attempt in d.take(retried, 2):
        functions.run(redis, d.attempts.claim(attempt, "w1", LEASE_MS, d.now_ms))
        again = d.attempts.defer(attempt, "w1", Defer(Feedback("limited")), now_ms=d.now_ms)
        replies.append([functions.run(redis, again)])
    contents = read_contents(redis)
    del contents[d.keys.audit]  # dated by the server's clock
    return [[each and json.loads(each) for each in some] for some in replies], contents


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.lists(REPORT, min_size=2, max_size=8), st.sampled_from([0, 50, 400, 1000, 20_000]), st.booleans())
def test_a_function_replies_and_changes_what_its_script_does(
    real_redis: Redis, feedback: list[Any], waited_ms: int, together: bool
) -> None:
    expected, contents = play(real_redis, Scripts, feedback, waited_ms, together=together)
    found, changed = play(real_redis, Functions, feedback, waited_ms, together=together)
    assert found == expected
    assert near(changed, contents)  # the name of a claim is random


ACTION = st.tuples(
    st.sampled_from(["grant", "claim", "finish", "limited", "late", "broken"]),
    st.sampled_from(["a", "b"]),
    st.integers(0, 400),
)


def act_on_two_lanes(redis: Redis, how: type[Functions], actions: Sequence[Any]) -> tuple[Any, Any]:
    """Two teams on a lane each, in turn; some calls are late and some fail in the middle."""
    emptied(redis)
    d = Deployment(redis)
    d.functions = d.lanes._functions = how()
    refs = {}
    for name, rate in (("a", 600), ("b", None)):
        lane = d.lane(f"sim:{name}", requests_per_minute=rate, tokens_per_minute=90_000)
        refs[name] = d.submit(team=f"team-{name}", run=name, rows=50)
        d.feed(refs[name], 50, lane)
    granted: dict[str, list[Any]] = {"a": [], "b": []}
    claimed: dict[str, list[Any]] = {"a": [], "b": []}
    replies: list[Any] = []
    for action, name, pause in actions:
        d.advance(pause)
        if action == "grant":
            granted[name] += d.take(refs[name], 2, f"sim:{name}")
            continue
        held = granted[name] if action == "claim" else claimed[name]
        if not held:
            continue
        attempt = held.pop(0)
        call = d.attempts.claim(attempt, "w1", LEASE_MS, d.now_ms)
        feedback = Feedback("limited" if action == "limited" else "ok", Usage(10, 10 + pause))
        if action == "claim":
            claimed[name].append(attempt)
        elif action == "limited":
            call = d.attempts.defer(attempt, "w1", Defer(feedback), now_ms=d.now_ms)
        else:
            worker = "w2" if action == "late" else "w1"
            call = d.attempts.finish(
                attempt, worker, feedback, Completion(JobState.SUCCEEDED, RECORD), d.now_ms
            )
        if action == "broken":
            placed = dict(zip(call.script.args, call.args, strict=True)) | {"memory": "{"}
            call = call.script.bind(call.keys, placed)
        try:
            replies.append(d.functions.run(redis, call))
        except ResponseError:
            replies.append("failed")
    contents = read_contents(redis)
    del contents[d.keys.audit]
    return [each if isinstance(each, str) else each and json.loads(each) for each in replies], contents


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.lists(ACTION, min_size=4, max_size=24))
def test_a_call_leaves_nothing_for_the_next_one(real_redis: Redis, actions: list[Any]) -> None:
    expected, contents = act_on_two_lanes(real_redis, Scripts, actions)
    found, changed = act_on_two_lanes(real_redis, Functions, actions)
    assert found == expected
    assert near(changed, contents)


@pytest.mark.parametrize("name", sorted(Preludes(LUA / "lib").files))
def test_a_prelude_changes_none_of_its_own_variables(name: str) -> None:
    code = Preludes(LUA / "lib").files[name].code
    outside = PRELUDE_FUNCTION.sub("", code)
    named = re.findall(r"^(?:local )?([\w, ]+?) = ", outside, re.MULTILINE)
    inside = "\n".join(PRELUDE_FUNCTION.findall(code))
    other, part = r"[\w.\[\]]+", r"(?:\[[^\]]*\]|\.\w+)*"
    for word in sorted({word for names in named for word in names.split(", ")}):
        assigned = rf"^\s+(?!local )(?:{other}, )*{word}{part}(?:, {other})* = "
        changed = re.findall(assigned, inside, re.MULTILINE)
        assert not changed, f"{word}: {changed}"


def test_other_versions_functions_are_deleted_and_foreign_ones_kept(bare: Redis) -> None:
    bare.function_load(FOREIGN)
    bare.function_load(OLDER)
    keep_functions(bare)
    keep_functions(bare)
    assert libraries(bare) == {"theirs"} | {function.name for function in all_functions()}


def test_a_function_that_the_server_misses_is_loaded_and_called(bare: Redis) -> None:
    d = Deployment(bare)
    attempt = d.take(d.queued_lane(jobs=1), 1)[0]
    assert names_of("permit_grant") in libraries(bare)
    bare.function_flush()
    assert d.claim(attempt) is not None
    assert names_of("attempt_claim") in libraries(bare)


def test_a_user_who_may_call_no_functions_runs_scripts(bare: Redis) -> None:
    acl(bare, "SETUSER", "plain", "on", ">secret", "~*", "&*", "+@all", "-fcall", "-function")
    how = bare.connection_pool.connection_kwargs
    with Redis(unix_socket_path=how["path"], username="plain", password="secret") as plain:
        d = Deployment(plain)
        attempt = d.take(d.queued_lane(jobs=1), 1)[0]
        assert d.claim(attempt) is not None
        keep_functions(plain)
    acl(bare, "DELUSER", "plain")
    assert libraries(bare) == set()


def test_a_function_that_is_gone_again_when_it_is_called_is_a_script_once(bare: Redis) -> None:
    class Raced(Redis):
        """Another version's leader deletes what is loaded, before it is called."""

        def function_load(self, code: str, replace: bool | None = False) -> Any:
            loaded = super().function_load(code, replace)
            if deletions:
                self.function_delete(deletions.pop())
            return loaded

    deletions = [names_of("permit_grant")]
    bare.function_flush()
    with Raced(unix_socket_path=bare.connection_pool.connection_kwargs["path"]) as raced:
        d = Deployment(raced)
        ref = d.queued_lane(jobs=2)
        assert len(d.take(ref, 1)) == 1
        assert names_of("permit_grant") not in libraries(bare)
        assert len(d.take(ref, 1)) == 1
        assert names_of("permit_grant") in libraries(bare)


@contextmanager
def sending(bare: Redis, rules: tuple[str, ...]) -> Iterator[Callable[..., list[Any]]]:
    """Sends batches of calls, with the batcher of a worker whose user these rules are for."""
    acl(bare, "SETUSER", "w", "on", ">secret", "~*", "&*", *rules)
    path = bare.connection_pool.connection_kwargs["path"]

    def send(*batches: Sequence[Call]) -> list[Any]:
        async def gather() -> list[Any]:
            redis: Any = AsyncRedis(unix_socket_path=path, username="w", password="secret")
            batcher, replies = Batcher(redis), list[Any]()
            for calls in batches:
                replies += await asyncio.gather(*map(batcher.send, calls))
            await redis.aclose()
            return replies

        return asyncio.run(gather())

    try:
        yield send
    finally:
        acl(bare, "DELUSER", "w")


@pytest.mark.parametrize("rules", [("+@all",), ("+@all", "-fcall"), ("+@all", "-function|load")])
def test_a_worker_loads_what_the_server_misses_or_runs_scripts(bare: Redis, rules: tuple[str, ...]) -> None:
    d = Deployment(bare)
    attempts = d.take(d.queued_lane(jobs=6), 6)
    bare.function_flush()
    bare.script_flush()
    calls = [d.attempts.claim(attempt, "w1", LEASE_MS, d.now_ms) for attempt in attempts]
    with sending(bare, rules) as send:
        replies = send(calls[:1], calls[1:])
    assert [Claim.of(reply) for reply in replies] == [Claim(0, 0, 0)] * 6
    one, many = names_of("attempt_claim"), names_of("attempt_claim", many=True)
    assert ({one, many} <= libraries(bare)) == (rules == ("+@all",))


@pytest.mark.parametrize(
    ("rules", "loads", "scripts"), [(("+@all",), 1, 0), (("+@all", "-fcall"), 1, 1)], ids=["may", "may not"]
)
def test_a_worker_loads_what_many_of_its_calls_miss_once(
    bare: Redis, rules: tuple[str, ...], loads: int, scripts: int
) -> None:
    d = Deployment(bare)
    calls = []
    for number in range(20):
        lane = f"sim:{number}"
        (attempt,) = d.take(d.queued_lane(1, lane, run=f"r{number}"), 1, lane)
        calls.append(d.attempts.claim(attempt, "w1", LEASE_MS, d.now_ms))
    bare.function_flush()
    bare.script_flush()
    bare.config_resetstat()
    with sending(bare, rules) as send:
        assert [Claim.of(reply) for reply in send(calls)] == [Claim(0, 0, 0)] * len(calls)
    counts = {name: each["calls"] for name, each in bare.info("commandstats").items()}
    assert (counts["cmdstat_function|load"], counts.get("cmdstat_eval", 0)) == (loads, scripts)


def test_a_worker_that_may_not_load_functions_asks_for_them_once(bare: Redis) -> None:
    d = Deployment(bare)
    first, second = (
        [
            d.attempts.claim(attempt, "w1", LEASE_MS, d.now_ms)
            for attempt in d.take(d.queued_lane(1, lane, run=lane[4:]), 1, lane)
        ]
        for lane in ("sim:a", "sim:b")
    )
    bare.function_flush()
    bare.config_resetstat()
    with sending(bare, ("+@all", "-function|load")) as send:
        assert [Claim.of(reply) for reply in send(first, second)] == [Claim(0, 0, 0)] * 2
    assert bare.info("commandstats")["cmdstat_fcall"]["calls"] == 2  # the first, and again after loading


@pytest.mark.parametrize(
    ("error", "missing"),
    [
        (NoScriptError("No matching script"), True),
        (ResponseError("Function not found"), True),
        (ResponseError("ERR unknown command 'FCALL', with args beginning with: "), True),
        (ResponseError("unknown subcommand 'LOAD'. Try FUNCTION HELP."), True),
        (NoPermissionError("User w has no permissions to run the 'fcall' command"), True),
        (NoPermissionError("User w has no permissions to run the 'function|load' command"), True),
        (NoPermissionError("User w has no permissions to run the 'hset' command"), False),
        (NoPermissionError("No permissions to access a key"), False),
        (ResponseError("user_function:7: Function not found"), False),
        (OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), False),
        ("Function not found", False),
    ],
)
def test_only_scripts_that_have_not_run_are_repeated(error: object, *, missing: bool) -> None:
    assert is_missing(error) == missing


def test_a_server_that_knows_no_functions_runs_scripts() -> None:
    class Old(fakeredis.FakeRedis):
        def execute_command(self, *args: Any, **options: Any) -> Any:
            if str(args[0]).split()[0] in ("FCALL", "FUNCTION"):
                raise ResponseError(f"unknown command '{args[0]}', with args beginning with: ")
            return super().execute_command(*args, **options)

    redis = Old()
    keep_functions(redis)
    d = Deployment(redis)
    assert d.claim(d.take(d.queued_lane(jobs=1), 1)[0]) is not None


def test_a_full_server_refuses_a_function_and_keeps_it_later(bare: Redis) -> None:
    d = Deployment(bare)
    ref = d.queued_lane(jobs=2)
    bare.function_flush()
    bare.config_set("maxmemory", "1")
    try:
        for refused in (lambda: d.take(ref, 1), lambda: keep_functions(bare)):
            with pytest.raises(OutOfMemoryError):
                refused()
    finally:
        bare.config_set("maxmemory", "0")
    assert len(d.take(ref, 1)) == 1
    assert names_of("permit_grant") in libraries(bare)


def test_each_form_of_a_verb_has_a_library_of_its_own() -> None:
    functions = all_functions()
    assert len({function.name for function in functions}) == len(functions) == 7
    for function in functions:
        assert function.library.startswith(f"#!lua name={function.name}\n")
        assert not re.search(r"^ *--", function.library, re.MULTILINE)
