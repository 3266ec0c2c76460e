"""The command ``fairlane``, which ``python -m fairlane.cli`` runs too."""

import signal
import sys

from fairlane.core.startup import lasting_imports

_before = signal.getsignal(signal.SIGINT)
if _before is signal.default_int_handler:  # a traceback of imports is nothing that a user can read
    signal.signal(signal.SIGINT, signal.SIG_DFL)
with lasting_imports():
    from fairlane.cli.main import main
if _before is signal.default_int_handler:
    signal.signal(signal.SIGINT, _before)

if __name__ == "__main__":
    sys.exit(main())
