"""Flower with Fairlane's pages, as a process: ``python -m fairlane.flower [--show-text] [OPTIONS OF
FLOWER]``.
"""

import sys

from fairlane.core.startup import lasting_imports

with lasting_imports():
    from fairlane.flower.process import main

if __name__ == "__main__":
    main(sys.argv[1:])
