"""``python -m fairlane.lab.simulator``: serves the simulated provider without the command line's start-up."""

from fairlane.core.startup import lasting_imports

with lasting_imports():
    from fairlane.lab.simulator.process import main

if __name__ == "__main__":
    main()
