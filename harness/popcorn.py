"""`python -m harness.popcorn <mode> <cases-file>`: our evaluator in the place of KernelBot's eval.py."""

from harness.cli.popcorn import main

if __name__ == "__main__":
    main()
