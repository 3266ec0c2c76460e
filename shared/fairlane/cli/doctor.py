"""``fairlane doctor``: what is wrong with a deployment, and what to do about it."""

from __future__ import annotations

import sys
from dataclasses import asdict

import typer
from rich.text import Text

from fairlane.broker import make_app
from fairlane.cli.checks import Clocks, Finding, Grade, Seen, counts, examine
from fairlane.cli.deployment import Deployment, open_deployment
from fairlane.cli.failures import FAILED
from fairlane.cli.invocation import Invocation, JsonOption, with_settings
from fairlane.cli.lanes import read_lanes
from fairlane.cli.output import print_findings, print_json, say
from fairlane.clock import Clock, SystemClock
from fairlane.configuration import load_secrets
from fairlane.errors import StoreUnavailable
from fairlane.settings import Settings
from fairlane.store.connect import without_password
from fairlane.version import __version__
