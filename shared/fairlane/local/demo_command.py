"""``fairlane demo``: starts a stack, runs a demonstration on it, prints the result and removes it."""

import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fairlane.cli.failures import Interrupted, interruptible
from fairlane.cli.invocation import expanded
from fairlane.cli.output import say
from fairlane.config.environment import process_environment
from fairlane.config.keys import VARIABLE_PREFIX
from fairlane.config.loader import load_settings
from fairlane.core.clock import SystemClock
from fairlane.core.errors import LocalStackError
from fairlane.local.demo.questions import demo_file
from fairlane.local.demo.session import run_demo
from fairlane.local.keeper import Keeper, WatchfulWaiter
from fairlane.local.plan import StackPlan
from fairlane.local.planning import hide_data_dir
from fairlane.local.stack import Stack

app = typer.Typer()

RESULTS = Path("demo-results")
QUESTIONS = 1319


@app.command()
def demo(
    questions: Annotated[
        int, typer.Option("--questions", "-n", min=1, max=QUESTIONS, help="Number of questions to ask.")
    ] = QUESTIONS,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            callback=expanded,
            help="Keep Redis's data and the logs here. Default: nothing is kept.",
        ),
    ] = None,
    results: Annotated[
        Path, typer.Option(metavar="DIR", callback=expanded, help="Directory for the results.")
    ] = RESULTS,
    workers: Annotated[int, typer.Option(min=1, max=32, help="Worker processes.")] = 2,
) -> None:
    """Show what Fairlane does, in about a minute: real processes, a simulated provider.

    1,319 questions go through two lanes with different limits. Each answer is compared with the right one,
    and a model on a third lane judges it. It leaves your settings alone. Ctrl-C stops everything.
    """
    say("starting Redis, a simulated provider, a scheduler and workers")
    with (
        interruptible(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as check,
        data_folder(data_dir) as folder,
        local_stack(folder, workers, check) as stack,
        demo_file("fairlane.toml") as config,
    ):
        run_demo(
            load_settings(config, environ=stack.environment),
            provider_url(stack),
            results,
            Console(highlight=False),
            questions=questions,
            waiter=WatchfulWaiter(check, Keeper(stack, SystemClock(), say)),
        )


@contextmanager
def data_folder(wanted: Path | None) -> Iterator[Path]:
    """The folder for data and logs: ``wanted``, or a temporary one that stays only after a failure."""
    if wanted is not None:
        hide_data_dir(wanted)
        yield wanted
        return
    folder = Path(tempfile.mkdtemp(prefix="fairlane-demo-"))
    keep = False
    try:
        yield folder
    except Interrupted:
        raise
    except BaseException:
        keep = (folder / "logs").is_dir()
        raise
    finally:
        if keep:
            say(f"the logs are kept in {folder / 'logs'}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def local_stack(folder: Path, workers: int, check: Callable[[], None]) -> Iterator[Stack]:
    """The demonstration's own deployment; ignores Fairlane's variables in the environment."""
    foreign = {name: "" for name in process_environment() if name.startswith(VARIABLE_PREFIX)}
    with ExitStack() as files:
        plan = StackPlan(
            data_dir=folder,
            config=files.enter_context(demo_file("fairlane.toml")),
            env=foreign,
            workers=workers,
            simulate=True,
            simulate_config=files.enter_context(demo_file("simulator.toml")),
        )
        yield files.enter_context(Stack(plan, report=say, checkpoint=check))


def provider_url(stack: Stack) -> str:
    """The simulated provider's ``base_url``. Raises `LocalStackError` if the stack has none."""
    if stack.simulator_url is None:
        raise LocalStackError("simulator", "is not part of this stack")
    return stack.simulator_url
