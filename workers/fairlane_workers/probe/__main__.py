"""``python -m fairlane_workers.probe``."""

import sys

from fairlane_workers.probe.probe import main

if __name__ == "__main__":
    sys.exit(main())
