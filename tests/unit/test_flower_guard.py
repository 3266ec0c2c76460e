"""Our pages in Flower: behind its login, closed to other sites, and nothing on them from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis import Redis

from fairlane.flower.installing import routes, task_routes
from fairlane.flower.web.pages import OWN_TEMPLATES, STATIC
from fairlane.model.run import RunRef
from fairlane.store.keys import Keys
from tests.support.flower_app import Served, served
from tests.support.scheduling import Cluster

KEYS = Keys("test")
PATHS = [
    *("/lanes", "/lane/sim:fast", "/runs", "/run/search/r1", "/run/search/r1/0", "/teams"),
    *("/fairlane/data/lanes", "/fairlane/data/lane/sim:fast", "/fairlane/data/runs"),
    *("/fairlane/data/run/search/r1", "/fairlane/data/run/search/r1/0", "/fairlane/data/teams"),
    *(f"/fairlane/run/search/r1/{verb}" for verb in ("cancel", "pause", "resume")),
    *("/task/search/r1/0/1", "/tasks/datatable"),
]
OPEN = "/fairlane/static/"


@pytest.fixture
def locked(real_redis: Redis) -> Iterator[Served]:
    with served(real_redis, login=True) as flower:
        yield flower


@pytest.fixture
def unlocked(real_redis: Redis) -> Iterator[Served]:
    with served(real_redis) as flower:
        yield flower


def submitted(redis: Redis) -> RunRef:
    """A run that waits for its lane."""
    cluster = Cluster(redis, lanes={"sim:fast": {"requests_per_minute": 1}})
    ref = cluster.submit(3)
    cluster.run_for(2)
    return ref


def token(client: httpx.Client) -> dict[str, str]:
    """What a page's script sends along: the cookie that came with the page."""
    assert client.get("/runs").status_code == 200
    return {"X-XSRFToken": client.cookies["_xsrf"]}


def asked(redis: Redis, ref: RunRef) -> list[bytes]:
    return list(redis.lrange(KEYS.inbox(ref.team), 0, -1))


def test_every_route_but_the_static_files_is_tried(unlocked: Served) -> None:
    patterns = [route.regex for route in (*routes(unlocked.readers), *task_routes(unlocked.readers, None))]  # type: ignore[arg-type]
    untried = [each.pattern for each in patterns if not any(each.match(path) for path in PATHS)]
    assert untried == [f"{OPEN}(.*)$"]


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize("wrong", [None, ("me", "wrong")])
def test_nothing_is_reported_or_done_without_the_login(
    locked: Served, real_redis: Redis, method: str, wrong: tuple[str, str] | None
) -> None:
    with httpx.Client(base_url=locked.base, auth=wrong) as stranger:
        answers = {path: stranger.request(method, path) for path in PATHS}

    codes = {path: answer.status_code for path, answer in answers.items()}
    if method in ("PUT", "DELETE"):
        assert set(codes.values()) <= {401, 405}
    elif method == "POST":
        # Flower's own page of a task takes no POST; its table asks for the login.
        assert {code for path, code in codes.items() if path != "/task/search/r1/0/1"} == {401}
    else:
        doors = {path for path in PATHS if path != "/tasks/datatable"} if method == "GET" else set()
        assert {codes[path] for path in doors} <= {401}
    assert not any("sim:fast" in answer.text for answer in answers.values())
    assert real_redis.keys("*inbox*") == []


def test_with_the_login_pages_and_data_are_there(locked: Served, real_redis: Redis) -> None:
    ref = submitted(real_redis)
    with locked.client(login=True) as client:
        for path in ("/lanes", "/lane/sim:fast", "/runs", f"/run/search/{ref.run}", "/teams"):
            answer = client.get(path)
            assert answer.status_code == 200
            assert 'aria-current="page">' in answer.text
            assert all(f">{page}</a>" in answer.text for page in ("Lanes", "Runs", "Teams", "Workers"))
        assert client.get("/fairlane/data/lanes").json()["lanes"][0]["lane"] == "sim:fast"
        assert client.get("/fairlane/data/teams").json()["teams"][0]["team"] == "search"


def test_the_user_of_a_button_is_reported_to_the_scheduler(locked: Served, real_redis: Redis) -> None:
    ref = submitted(real_redis)
    with locked.client(login=True) as client:
        headers = token(client)
        for verb in ("pause", "resume", "cancel"):
            assert client.post(f"/fairlane/run/search/{ref.run}/{verb}", headers=headers).json() == {
                "asked": verb
            }

    entries = [entry.decode() for entry in asked(real_redis, ref)]
    assert [re.findall(r'"op": "(\w+)"', entry) for entry in entries] == [["pause"], ["resume"], ["cancel"]]
    assert all('"by": "me (Flower)"' in entry for entry in entries[:2])


@pytest.mark.parametrize("login", [False, True])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-XSRFToken": "2|00000000|00|0"},
        {"right": "", "Sec-Fetch-Site": "cross-site"},
        {"right": "", "Sec-Fetch-Site": "same-site"},
        {"right": "", "Origin": "http://elsewhere.example"},
        {"right": "", "Origin": "null"},
    ],
)
def test_another_site_cannot_press_a_button(real_redis: Redis, login: bool, headers: dict[str, str]) -> None:
    ref = submitted(real_redis)
    with served(real_redis, login=login) as flower, flower.client(login=login) as client:
        right = token(client)
        sent = {name: value for name, value in headers.items() if name != "right"}
        sent |= right if "right" in headers else {}
        answer = client.post(f"/fairlane/run/search/{ref.run}/cancel", headers=sent)

    assert answer.status_code == 403
    assert asked(real_redis, ref) == []


@pytest.mark.parametrize(
    ("host", "shown", "code"),
    [
        ("127.0.0.1:5555", {}, 200),
        ("localhost:5555", {}, 200),
        ("[::1]:5555", {}, 200),
        ("rebound.example:5555", {}, 403),
        ("rebound.example:5555", {"address": "0.0.0.0"}, 200),
        ("rebound.example:5555", {"login": True}, 200),
    ],
)
def test_a_name_that_was_made_to_lead_to_this_machine_leads_nowhere(
    real_redis: Redis, host: str, shown: dict[str, Any], code: int
) -> None:
    with (
        served(real_redis, **{"address": "127.0.0.1", **shown}) as flower,
        flower.client(login=shown.get("login", False), headers={"Host": host}) as client,
    ):
        assert [client.get(path).status_code for path in ("/runs", "/fairlane/data/runs")] == [code, code]


def test_a_flower_that_only_reads_has_no_buttons(real_redis: Redis) -> None:
    ref = submitted(real_redis)
    with served(real_redis, read_only=True) as flower, flower.client() as client:
        headers = token(client)
        assert "data-read-only" in client.get(f"/run/search/{ref.run}").text
        assert client.post(f"/fairlane/run/search/{ref.run}/cancel", headers=headers).status_code == 403
    assert asked(real_redis, ref) == []


def test_nothing_is_written_for_a_run_that_is_not_there(unlocked: Served, real_redis: Redis) -> None:
    with unlocked.client() as client:
        answer = client.post("/fairlane/run/nobody/r9/cancel", headers=token(client))
    assert answer.status_code == 404
    assert real_redis.keys("*nobody*") == []


def test_what_is_not_there_is_404_in_words(unlocked: Served) -> None:
    with unlocked.client() as client:
        assert client.get("/fairlane/data/lane/a%25b").json()["error"].startswith("no lane 'a%b'")
        assert client.get("/fairlane/data/run/search/r9").status_code == 404
        assert client.get("/fairlane/data/lane/x?span=years").status_code == 400
        for page in ("0", "-1", "x", "1000", "٣"):
            assert client.get("/fairlane/data/runs", params={"page": page}).status_code == 400


@pytest.mark.parametrize(
    ("path", "section", "words"),
    [
        ("/run/search/r9", "runs", "no run &#x27;r9&#x27;: it may have expired; <code>fairlane runs</code>"),
        ("/run/search/r9/0", "runs", "no run &#x27;r9&#x27;"),
        ("/lane/a%25b", "lanes", "no lane &#x27;a%b&#x27;"),
    ],
)
def test_a_page_of_what_is_not_there_is_404_and_leads_to_the_list(
    unlocked: Served, path: str, section: str, words: str
) -> None:
    with unlocked.client() as client:
        answer = client.get(path)
    assert answer.status_code == 404
    assert words in answer.text
    assert "`" not in answer.text.partition("<main")[2].partition("</main>")[0]
    assert f'href="/{section}"' in answer.text


def test_a_redis_that_is_away_is_503_and_takes_no_page_down(
    unlocked: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> None:
        raise ConnectionError

    monkeypatch.setattr(type(unlocked.readers.lanes), "all", lambda _: away())
    with unlocked.client() as client:
        answer = client.get("/fairlane/data/lanes")
        assert (answer.status_code, answer.json()) == (503, {"error": "Redis does not answer"})
        assert client.get("/lanes").status_code == 200
        for work in ("look", "all"):
            monkeypatch.setattr(type(unlocked.readers.runs), work, lambda *_: away())
        assert client.get("/run/search/r9").status_code == 200
        assert client.get("/fairlane/data/runs").status_code == 503


def test_with_oauth_who_is_not_logged_in_is_led_to_the_login_and_shown_nothing(real_redis: Redis) -> None:
    with (
        served(
            real_redis, auth=".*@example.com", auth_provider="flower.views.auth.GithubLoginHandler"
        ) as flower,
        flower.client() as client,
    ):
        page = client.get("/runs")
        assert page.status_code == 302
        assert page.headers["location"] == "/login?next=%2Fruns"
        assert client.get("/fairlane/data/runs").status_code == 403
        assert client.post("/fairlane/run/search/r1/cancel").status_code == 403


def test_pages_are_reported_to_load_nothing_from_elsewhere(unlocked: Served) -> None:
    with unlocked.client() as client:
        answer = client.get("/lane/sim:fast")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in answer.headers


def test_no_file_of_ours_names_an_address_or_makes_markup_of_text() -> None:
    files = [path for folder in (OWN_TEMPLATES, STATIC) for path in folder.rglob("*") if path.is_file()]
    own = [path for path in files if "uplot" not in path.parts]
    assert len(own) > 12
    for path in own:
        text = path.read_text(encoding="utf-8")
        assert "http" + "://" not in text, path
        assert "https://" not in text, path
        assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|eval\(|\{% raw", text), path
        assert not re.search(r"<script>|\sstyle=\"|\son\w+=\"", text), path


def test_the_charts_library_comes_with_its_licence() -> None:
    folder = Path(STATIC, "uplot")
    assert "MIT" in (folder / "LICENSE").read_text(encoding="utf-8")
    assert (
        (folder / "uPlot.iife.min.js")
        .read_text(encoding="utf-8")
        .startswith("/*! https://github.com/leeoniya/uPlot")
    )


def test_names_in_addresses_are_text_on_the_page(unlocked: Served) -> None:
    with unlocked.client() as client:
        page = client.get("/lane/%3Cscript%3Ealert(1)%3C%2Fscript%3E").text
    assert "<script>alert" not in page
    assert "&lt;script&gt;" in page


def test_below_a_prefix_pages_data_and_entries_are_there(real_redis: Redis) -> None:
    with served(real_redis, url_prefix="flower") as flower, flower.client() as client:
        page = client.get("/lanes").text
        assert 'href="/flower/runs"' in page
        assert 'src="/flower/fairlane/static/lanes.js"' in page
        assert client.get("/fairlane/data/lanes").json()["lanes"] == []
        script = client.get("/fairlane/static/lanes.js")
        assert (script.status_code, script.headers["cache-control"]) == (200, "no-cache")
        assert client.get("/fairlane/static/../installing.py").status_code in (403, 404)
        assert client.get("/fairlane/static/%2e%2e/installing.py").status_code in (403, 404)


@pytest.mark.parametrize(
    "path", ["/", "/workers?json=1", "/tasks", "/broker", "/metrics", "/healthcheck", OPEN]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_flower_s_own_pages_answer_to_no_other_name_either(real_redis: Redis, path: str, method: str) -> None:
    with served(real_redis, address="127.0.0.1") as flower:
        with flower.client(headers={"Host": "elsewhere.example"}) as client:
            assert client.request(method, path).status_code == 403
        with flower.client() as client:
            assert client.get("/healthcheck").status_code == 200
