"""GPU MODE's formats and rules, each written once: the problem folder (task.yml), the result lines of POPCORN_FD, what
its service refuses of a file (front_door, plain_words). Runs nothing.
"""
