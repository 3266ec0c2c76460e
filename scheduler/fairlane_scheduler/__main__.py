"""``python -m fairlane_scheduler``: a scheduler process, leader or hot standby."""

from fairlane.core.startup import end_when_asked, lasting_imports

if __name__ == "__main__":
    end_when_asked()

with lasting_imports():
    from fairlane.telemetry.log_stream import own_streams
    from fairlane_scheduler.command import main

if __name__ == "__main__":
    own_streams()
    raise SystemExit(main())
