"""``python -m fairlane_workers``: a worker process with its own options."""

from fairlane.core.startup import end_on_signals, lasting_imports

if __name__ == "__main__":
    end_on_signals()

with lasting_imports():
    from fairlane.telemetry.log_stream import install_log_streams
    from fairlane_workers.command import main

if __name__ == "__main__":
    install_log_streams()
    raise SystemExit(main())
