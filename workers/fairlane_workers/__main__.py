"""``python -m fairlane_workers``: a worker process with its own options."""

from fairlane.core.startup import end_when_asked, lasting_imports

if __name__ == "__main__":
    end_when_asked()

with lasting_imports():
    from fairlane.telemetry.log_stream import own_streams
    from fairlane_workers.command import main

if __name__ == "__main__":
    own_streams()
    raise SystemExit(main())
