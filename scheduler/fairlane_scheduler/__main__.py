"""``python -m fairlane_scheduler``: a scheduler process, leader or hot standby."""

from fairlane.core.startup import lasting_imports

with lasting_imports():
    from fairlane_scheduler.command import main

if __name__ == "__main__":
    raise SystemExit(main())
