"""GPU MODE's formats, each written once: the problem folder (task.yml) and the result lines of POPCORN_FD. Runs
nothing."""
