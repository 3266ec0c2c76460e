"""``make compose-check``: docker-compose.yml as a whole, while a run of 1,800 calls goes on.

Workers are scaled to three, one is drained, the leader is stopped, Redis is restarted, a worker is killed.
Then every item must have one record, and all calls but those of the killed worker have been paid for once.
Takes about four minutes and an engine: Docker with Compose 1.29 or 2, which ``DOCKER_HOST`` may name.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter

import httpx

from fairlane import Client, Run, RunState, llm_judge
from tests.compose.project import Project, TrialFailed
from tests.support.wait import wait_until

ITEMS = 900
HEALTHY_S, PATIENCE_S = 120.0, 400.0
LOST_AT_MOST = 100  # calls that the killed worker had under way: its slots


class Trial:
    """Plays the steps in order, and prints each with the seconds since the run was submitted."""

    def __init__(self, project: Project) -> None:
        self._project, self._started = project, time.monotonic()

    def run(self) -> None:
        project = self._project
        self._tell("building, and starting two schedulers and one worker")
        project.up(workers=1, build=True)
        wait_until(lambda: not project.unhealthy(), HEALTHY_S, 1.0)
        self._check_probes()
        with Client(project.redis_url, team="docs") as client:
            run = self._submit(client)
            self._disturb(run)
            run.wait(timeout=PATIENCE_S)
            self._check_books(run)
        wait_until(lambda: not project.unhealthy(), HEALTHY_S, 1.0)
        self._tell("every container is healthy")

    def _submit(self, client: Client) -> Run:
        self._started = time.monotonic()
        rows = [{"question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(ITEMS)]
        judge = llm_judge(
            model="sim:judge",
            template="Expected: {{ answer }}\nAnswer: {{ output }}\nCorrect? yes or no:",
            choices={"yes": 1, "no": 0},
        )
        run = client.submit(rows, "Q: {{ question }}\nA:", model="sim:fast", evaluators=[judge])
        self._tell(f"submitted {ITEMS} items, each with a judge")
        return run

    def _disturb(self, run: Run) -> None:
        project = self._project
        self._after(run, 100)
        project.up(workers=3)
        wait_until(lambda: len(self._workers("alive")) == 3, HEALTHY_S, 1.0)
        self._tell("three workers")

        self._after(run, 300)
        drained = self._workers("alive")[0]
        project.fairlane("drain", drained, "--wait", "--timeout", "60")
        if self._workers("drained") != [drained]:
            raise TrialFailed(f"{drained} is not drained: {project.fairlane('workers')}")
        project.fairlane("drain", drained, "--undo")
        self._tell(f"{drained} was drained, and works again")

        self._after(run, 600)
        leader = project.leader()
        project.docker("stop", leader)
        wait_until(lambda: project.leader() != leader, 30.0, 0.5)
        self._tell("the leader is stopped, the standby leads")

        self._after(run, 800)
        project.compose("restart", "redis")
        self._tell("Redis is restarted")
        project.docker("start", leader)

        self._after(run, 1100)
        killed = project.containers("worker")[0]
        project.docker("exec", killed, "python", "-c", _KILL)
        wait_until(lambda: project.restarts(killed) == 1, HEALTHY_S, 0.5)
        self._tell("a worker is killed, and was started again")

    def _check_probes(self) -> None:
        for service, port in (("scheduler", 9460), ("worker", 9480)):
            for container in self._project.containers(service):
                for path in ("/healthz", "/readyz"):
                    self._project.answers(container, port, path)
        counted = [
            "fairlane_scheduler_is_leader 1.0" in self._project.answers(each, 9460, "/metrics")
            for each in self._project.containers("scheduler")
        ]
        if sorted(counted) != [False, True]:
            raise TrialFailed(f"of the schedulers {sum(counted)} lead")
        self._tell("probes answer, and one scheduler of two leads")

    def _check_books(self, run: Run) -> None:
        status, records = run.status(), list(run.results())
        if status.state is not RunState.COMPLETED:
            raise TrialFailed(f"the run is {status.state}")
        if [record.item for record in records] != list(range(ITEMS)):
            raise TrialFailed("an item is missing, or is there twice")
        states = Counter(record.state for record in records)
        unscored = [record.item for record in records if None in record.scores.values()]
        if len(states) != 1 or unscored:
            raise TrialFailed(f"{dict(states)}, without a score: {unscored}")
        stats = httpx.get(f"{self._project.provider_url}/stats", timeout=10).json()["models"]
        answered = sum(each["completed"] for each in stats.values())
        refused = sum(each["rejected"] for each in stats.values())
        again = answered - 2 * ITEMS
        if not 0 <= again <= LOST_AT_MOST:
            raise TrialFailed(f"{answered} calls were answered for {2 * ITEMS} jobs")
        self._tell(f"completed: {ITEMS} records, {2 * ITEMS + again} calls answered, {refused} times 429")

    def _workers(self, state: str) -> list[str]:
        found = json.loads(self._project.fairlane("workers", "--json"))
        return [each["name"] for each in found if each["state"] == state]

    def _after(self, run: Run, jobs: int) -> None:
        wait_until(lambda: run.status().jobs_done >= jobs, PATIENCE_S, 0.5)

    def _tell(self, what: str) -> None:
        print(f"{time.monotonic() - self._started:6.1f} s  {what}", flush=True)


# The container's first process is its init, which a signal from inside does not reach; its child is ours.
_KILL = """
import json, os, signal
os.kill(json.load(open("/run/fairlane/ready"))["pid"], signal.SIGKILL)
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make compose-check", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the containers as they are afterwards")
    keep = parser.parse_args().keep
    try:
        project = Project()
        project.docker("version")
    except TrialFailed as failure:
        print(f"compose-check: {failure}", file=sys.stderr)
        return 2
    try:
        Trial(project).run()
    except (TrialFailed, AssertionError) as failure:
        print(f"compose-check failed: {failure}", file=sys.stderr)
        print(project.compose("logs", "--tail", "40"), file=sys.stderr)
        return 1
    finally:
        if not keep:
            project.down()
    print("docker-compose.yml holds")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
