"""`python -m harness`."""

import sys

USAGE = 2  # harness.core.errors.Exit, which older interpreters cannot read

if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036  # with PYTHON=, whatever the user names runs this
        version = ".".join(map(str, sys.version_info[:3]))
        print(
            f"error: {sys.executable} is Python {version}, and the harness needs 3.11 or newer; name another "
            "(PYTHON=python3.11)",
            file=sys.stderr,
        )
        sys.exit(USAGE)
    try:
        from harness.cli.main import main

        main()
    except ModuleNotFoundError as error:
        package = (error.name or "harness").partition(".")[0]
        if package == "harness":
            raise
        print(
            f"error: {sys.executable} has no package {package}; install what pyproject.toml names there, or leave out "
            "PYTHON=: `make` then makes a .venv with all of it",
            file=sys.stderr,
        )
        sys.exit(USAGE)
    except KeyboardInterrupt:  # before a verb began: importing takes half a second
        print("\ninterrupted: nothing was begun", file=sys.stderr)
        sys.exit(130)
