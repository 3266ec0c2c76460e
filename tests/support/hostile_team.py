"""A hostile team: it writes values below its own keys that no client of ours writes."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable
from itertools import count
from typing import Any

from fairlane.datasets.rows import encode_page
from fairlane.model.run import RunRef
from fairlane.model.sessions import members_field, memberships_field
from fairlane.store.keys import Keys
from fairlane.store.run_queries import ORIGINS
from tests.support.hostile_specs import EXTREMES, WHOLE, numbers, with_number

TEAM = "attacker"
SPEC: dict[str, Any] = {
    "team": TEAM,
    "name": "n",
    "prompts": [[{"role": "user", "content": "{{ q }}"}]],
    "rows": 1,
    "page_rows": 10,
    "submitted_ms": 1,
}
JUDGE = {
    "kind": "llm_judge",
    "name": "j",
    "template": "{{ session }}",
    "choices": {"y": 1.0},
    "level": "session",
}


class HostileTeam:
    """Its submissions go around the client; ``model`` is what they ask for."""

    def __init__(self, redis: Any, keys: Keys, model: str) -> None:
        self._redis, self._keys, self.model = redis, keys, model
        self._numbers = count()
        self.runs: list[RunRef] = []

    def submit(self, spec: str | bytes, fields: dict[str, bytes] | None = None) -> None:
        """Submit a spec with the text ``<run>`` for its name; ``fields`` are its pages and more."""
        ref = RunRef(TEAM, f"h{random.getrandbits(60)}-{next(self._numbers)}")
        text = spec.encode() if isinstance(spec, str) else spec
        self._redis.hset(self._keys.rows(ref), mapping=fields or {"0": encode_page([{"q": 1}])})
        self._redis.set(self._keys.spec(ref), text.replace(b"<run>", ref.run.encode()))
        self.runs.append(ref)
        self.ask(json.dumps({"op": "submit", "run": ref.run}))

    def ask(self, *entries: str | bytes) -> None:
        """Put entries into its inbox."""
        self._redis.rpush(self._keys.inbox(TEAM), *entries)

    def spec(self, **fields: Any) -> str:
        return json.dumps({**SPEC, "run": "<run>", "models": [self.model], **fields})

    @property
    def asks(self) -> bool:
        """Whether entries of its inbox are not read yet."""
        return bool(self._redis.llen(self._keys.inbox(TEAM)))

    def give_up(self) -> None:
        """Cancel all that it submitted."""
        for ref in self.runs:
            self.ask(json.dumps({"op": "cancel", "run": ref.run}))


def numbers_of_any_size(team: HostileTeam) -> None:
    for path in numbers(WHOLE):
        for number in EXTREMES:
            team.submit(with_number(path, number, team=TEAM, run="<run>", models=[team.model]))


def values_without_end(team: HostileTeam) -> None:
    deep = "[" * 2_000_000
    for text in (
        f"[{'[],' * 1_000_000}[]]",
        deep,
        deep + "]" * 2_000_000,
        '{"a":' * 100_000,
        f'"{"x" * 4_000_000}"',
    ):
        team.submit(team.spec(params={"stop": "<here>"}).replace('"<here>"', text))
        team.submit(text)
    for text in ("null", "[]", "\ufffe", "{}", "5"):
        team.submit(text)


def pages_that_burst(team: HostileTeam) -> None:
    bomb = zlib.compress(b"[" + b"{}," * 8_000_000 + b"{}]", 9)
    for page in (
        bomb,
        bomb[:-9],
        zlib.compress(b"[" * 10_000_000, 9),
        b"",
        b"x" * 1000,
        zlib.compress(b"null"),
    ):
        team.submit(team.spec(rows=10), {"0": page})


def sessions_of_millions(team: HostileTeam) -> None:
    flood = b",".join([b"0"] * 5_000_000)
    pages = {"0": encode_page([{"q": n} for n in range(2)])}
    judge = JUDGE | {"model": team.model}
    for block in (b"[[" + flood + b"],[" + flood + b"]]", b"[[0,1],[9999999999]]", b"[[0],[-1]]", b"["):
        beside = dict.fromkeys(
            (memberships_field(0), members_field(0), f"{ORIGINS}0"), zlib.compress(block, 9)
        )
        team.submit(team.spec(rows=2, sessions=2, session_field="q", evaluators=[judge]), pages | beside)


def messages_of_anything(team: HostileTeam) -> None:
    parts: list[Any] = [
        None,
        [None],
        [[]],
        {},
        [{"role": None}],
        [{"role": "user", "content": [None]}],
        5,
        "x",
    ]
    bodies: list[Any] = [{"messages": part} for part in parts] + [
        {"messages": [{}], "max_tokens": part} for part in parts
    ]
    bodies += [None, [], "x"]
    page = encode_page([{"r": each} for each in bodies])
    team.submit(team.spec(rows=len(bodies), page_rows=50, prompts=[], request_field="r"), {"0": page})


def an_inbox_of_rubbish(team: HostileTeam) -> None:
    team.ask(*[json.dumps({"op": "submit", "run": f"none{n}"}) for n in range(500)])
    team.ask(*[b"\xff" * 900, b"{" * 1000, b"null", b"[]", b"x" * 5_000_000] * 3)
    team.ask(
        *[f'{{"op": "{op}", "run": "none", "rows": {"9" * 400}}}' for op in ("extend", "cancel", "pause")]
    )


ACTS: dict[str, Callable[[HostileTeam], None]] = {
    act.__name__.replace("_", " "): act
    for act in (
        numbers_of_any_size,
        values_without_end,
        pages_that_burst,
        sessions_of_millions,
        messages_of_anything,
        an_inbox_of_rubbish,
    )
}


def generated(team: HostileTeam, seed: int, specs: int = 60) -> None:
    """Specs of which a place or two holds what nobody thought of, with pages to match."""
    chance = random.Random(seed)
    for _ in range(specs):
        document: Any = json.loads(json.dumps({**WHOLE, **json.loads(team.spec())}))
        for _ in range(chance.randint(1, 3)):
            _change(document, chance)
        rows = [_value(chance, 3) for _ in range(chance.randint(0, 12))]
        page = zlib.compress(json.dumps(rows).encode())
        if chance.random() < 0.3:
            page = bytes(chance.choice(page) for _ in range(chance.randint(0, 100)))
        team.submit(json.dumps(document), {str(chance.choice([0, 0, 1, -1])): page})


def _change(document: Any, chance: random.Random) -> None:
    """Put a hostile value into one place of a document."""
    part = document
    while True:
        places = list(part) if isinstance(part, dict) else list(range(len(part)))
        place = chance.choice(places)
        inner = part[place]
        if not (isinstance(inner, dict | list) and inner) or chance.random() < 0.2:
            if place not in ("run", "team"):
                part[place] = _value(chance, 2)
            return
        part = inner


def _value(chance: random.Random, depth: int) -> Any:
    """Any JSON: of the wrong type, too long, too large, or a template that works for long."""
    plain: list[Callable[[], Any]] = [
        lambda: None,
        lambda: chance.choice([0, -1, 10**400, 1e308, 2**63, True, 0.5]),
        lambda: chance.choice(
            ["", "\x00", "\u202e\x1b[2J", "é" * 100_000, "python:os:system", "sim:zz", "../../x", "*"]
        ),
        lambda: chance.choice(
            ["{{ q|int ** 9999 }}", "{% for a in range(10**9) %}x{% endfor %}", "{{ q.__class__ }}"]
        ),
        lambda: chance.choice(["(?:a{1000}){4000}", "{{ (q|string * 99999).rfind('ab') }}", "{{"]),
    ]
    if depth and chance.random() < 0.5:
        inner = [_value(chance, depth - 1) for _ in range(chance.randint(0, 4))]
        names = ["q", "role", "content", "messages", "type", "model", "name", ""]
        return inner if chance.random() < 0.5 else {chance.choice(names): each for each in inner}
    return chance.choice(plain)()
