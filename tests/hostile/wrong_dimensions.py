"""Right in its values, but of thousands of dimensions, which are more than a message has room to name.

expect: wrong: the result cannot be judged: it has 50\d\d dimensions
"""

from reference import ref_kernel


def custom_kernel(data):
    result = ref_kernel(data)
    return result.view([1] * 5000 + list(result.shape))
