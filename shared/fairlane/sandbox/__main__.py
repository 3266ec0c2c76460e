"""``python -m fairlane.sandbox``: the child process of a pool, which only its parent starts."""

from fairlane.core.startup import lasting_imports

with lasting_imports():
    from fairlane.sandbox.child import main

if __name__ == "__main__":
    main()
