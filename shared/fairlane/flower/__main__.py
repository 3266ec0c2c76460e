"""Flower with our pages, as a process: ``python -m fairlane.flower [--show-text] [OPTIONS OF FLOWER]``."""

from __future__ import annotations

import sys

from fairlane.broker.app import make_app
from fairlane.client.deployment import Deployment
from fairlane.config.loader import load_settings
from fairlane.flower.ending import end_soon, refuse_place
from fairlane.flower.installing import install
from fairlane.flower.tasks import attempt_events

SHOW_TEXT = "--show-text"


def main(arguments: list[str]) -> None:
    """Put the pages into Flower and become it. Texts are shown only where ``--show-text`` is given."""
    settings = load_settings()
    install(Deployment.open(settings), show_text=SHOW_TEXT in arguments)
    attempt_events.install()
    app = make_app(settings, "fairlane_flower")
    try:
        app.start(["flower", *(argument for argument in arguments if argument != SHOW_TEXT)])
    except OSError as error:
        refuse_place(error)
    finally:
        end_soon(code=0 if sys.exc_info()[0] in (None, SystemExit) else 1)


if __name__ == "__main__":
    main(sys.argv[1:])
