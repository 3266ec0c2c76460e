"""``fairlane init``: a commented ``fairlane.toml`` from the keys that the environment has."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from fairlane.cli.operate.connection_views import snippet
from fairlane.cli.output import print_line, say
from fairlane.config.connections.presets import PRESETS, Preset, all_presets
from fairlane.config.environment import process_environment
from fairlane.config.loader import DEFAULT_FILE
from fairlane.core.errors import ConfigurationError
from fairlane.core.paths import at_home
from fairlane.export.files import whole_file

app = typer.Typer()

STANDARD_OUTPUT = Path("-")

_HEAD = """\
# Settings of Fairlane. `fairlane config` shows what is in force, docs/configuration.md has every key.
# FAIRLANE_<SECTION>__<KEY> overrides a key; .env in this folder is read, too.

[redis]
# url = "redis://127.0.0.1:6379/0"    # `fairlane up` starts a server where none is configured
"""

_NO_KEY = """\
# No provider's key is set here. Each of these needs its variable, in the environment or in .env:
"""

_TAIL = """\
# Fairlane detects the limits of each lane. Configure those that must never be exceeded:
# [lanes."{connection}:MODEL"]
# requests_per_minute = 500
# tokens_per_minute = 200000
# exact = true

# Prices, in dollars per million tokens, give the cost of a run:
# [prices."{connection}:MODEL"]
# input = 0.15
# output = 0.60

# Teams share every lane by weight:
# [teams.search]
# weight = 3
"""


@app.command()
def init(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="File to write. -: standard output.")
    ] = DEFAULT_FILE,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a commented fairlane.toml, with a connection for each provider whose key is set.

    Keys stay where they are: the file names their variables.
    """
    environ = process_environment()
    found = {name: each for name, each in all_presets().items() if environ.get(each.api_key_env or "")}
    text = "\n".join(_sections(found))
    if output == STANDARD_OUTPUT:
        print_line(text.rstrip("\n"))
        return
    target = at_home(output)
    if target.exists() and not force:
        remedy = "--force replaces it, --output - prints the text."
        raise ConfigurationError("--output", str(output), "exists already", remedy)
    with whole_file(target) as file:
        file.write(text)
    incomplete = [name for name, preset in found.items() if _is_incomplete(preset)]
    named = ", ".join(name for name in found if name not in incomplete) or "none"
    say(f"wrote {output}; connections: {named}")
    for name in incomplete:
        say(f"{name} needs an address or a region of yours: fill in its section")
    say("next: `fairlane connections test NAME --model MODEL`, then `fairlane up`")


def _sections(found: Mapping[str, Preset]) -> Iterator[str]:
    yield _HEAD
    for name, preset in found.items():
        yield f"{_section(name, preset)}\n"
    if not found:
        examples = (_section(name, PRESETS[name]) for name in ("openai", "anthropic"))
        yield _NO_KEY + "\n".join(map(_commented, examples)) + "\n"
    else:
        yield "# Further providers: `fairlane connections --providers` lists them.\n"
    yield _TAIL.replace("{connection}", next(iter(found), "openai"))


def _section(name: str, preset: Preset) -> str:
    text = snippet(name, preset, name)
    if not _is_incomplete(preset):
        return text
    return f"# Fill in your values, and remove the #:\n{_commented(text)}"


def _is_incomplete(preset: Preset) -> bool:
    return preset.base_url is None or bool(preset.address_fields)


def _commented(text: str) -> str:
    return "\n".join(line if line.startswith("#") else f"# {line}" for line in text.splitlines())
