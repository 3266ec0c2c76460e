"""``python -m fairlane_scheduler``: a scheduler process, leader or hot standby."""

from fairlane.core.startup import end_on_signals, lasting_imports

if __name__ == "__main__":
    end_on_signals()

with lasting_imports():
    from fairlane.telemetry.log_stream import install_log_streams
    from fairlane_scheduler.command import main

if __name__ == "__main__":
    install_log_streams()
    raise SystemExit(main())
