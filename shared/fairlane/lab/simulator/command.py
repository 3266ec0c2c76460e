"""``fairlane simulate``: serves the simulated provider until SIGINT or SIGTERM."""

from pathlib import Path
from typing import Annotated

import typer

from fairlane.cli.invocation import existing_file
from fairlane.cli.output import say
from fairlane.cli.process import ReadyFileOption
from fairlane.embedded.ports import LOOPBACK
from fairlane.lab.simulator.config import MOST_SEED, SimulatedModel, SimulatorConfig
from fairlane.lab.simulator.http.serving import run_simulator

app = typer.Typer()

SIMULATOR_PORT = 8100


MODELS = {
    "fast": SimulatedModel(output="assistant", answer_style="plain", accuracy=0.9),
    "judge": SimulatedModel(output="judge", judge_accuracy=0.98),
}
"""Models without a configuration: their scores are neither all 0 nor all 1."""


@app.command()
def simulate(
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            callback=existing_file,
            help="TOML with a \\[models.NAME] table for each model; left out: fast and judge.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = LOOPBACK,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port to listen on; 0: any free port.")
    ] = SIMULATOR_PORT,
    ready_file: ReadyFileOption = None,
    seed: Annotated[
        int | None, typer.Option(min=-MOST_SEED, max=MOST_SEED, help="Seed, instead of the one in the file.")
    ] = None,
) -> None:
    """Run the simulated provider alone: every protocol, with limits and faults."""
    simulated = SimulatorConfig(models=MODELS) if config is None else SimulatorConfig.from_toml(config)
    if seed is not None:
        simulated = simulated.model_copy(update={"seed": seed})
    say(f"simulating {', '.join(simulated.models)} on {host}, port {port or 'any'}")
    run_simulator(simulated, host, port, ready_file)
