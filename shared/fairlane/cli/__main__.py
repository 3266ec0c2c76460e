"""``python -m fairlane.cli``: the same as ``fairlane``."""

import sys

from fairlane.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
