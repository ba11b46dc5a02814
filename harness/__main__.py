"""`python -m harness`."""

import sys

if __name__ == "__main__":
    try:
        from harness.cli.main import main

        main()
    except KeyboardInterrupt:  # before a verb began: importing takes half a second
        print("\ninterrupted: nothing was begun", file=sys.stderr)
        sys.exit(130)
