"""Makes a file of a terabyte.

expect: raised: File too large
"""


def custom_kernel(data):
    with open("large", "wb") as file:
        file.truncate(1 << 40)
