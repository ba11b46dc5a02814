"""Where a job runs: the protocol (base), child processes of this machine (local), and a fake for tests (fake). Knows
commands, files and processes; no kind of problem and no queue."""
