"""``python -m fairlane_scheduler``: a scheduler process, leader or hot standby."""

from fairlane.core.startup import lasting_imports

with lasting_imports():
    from fairlane.telemetry.log_stream import own_streams
    from fairlane_scheduler.command import main

if __name__ == "__main__":
    own_streams()
    raise SystemExit(main())
