"""Writes its own verdict in colours into its error, with every form of escape sequence.

expect: raised: verdict
"""


def custom_kernel(data):
    raise ValueError("\x1b[2J\x9b31mverdict  pass\x9d0;title\x9c\x1b(B\x1b]8;;http://a.b\x1b\\ \x1b[3\x001m")
