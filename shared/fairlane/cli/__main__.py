"""The command ``fairlane``, which ``python -m fairlane.cli`` runs too."""

import sys

from fairlane.core.startup import lasting_imports

with lasting_imports():
    from fairlane.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
