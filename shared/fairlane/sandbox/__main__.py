"""``python -m fairlane.sandbox``: the child process of a pool; its parent alone starts it."""

from fairlane.core.startup import lasting_imports

with lasting_imports():
    from fairlane.sandbox.child import main

if __name__ == "__main__":
    main()
