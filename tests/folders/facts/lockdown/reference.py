def generate_input(size, seed):
    return list(range(seed, seed + size))


def ref_kernel(data):
    return sum(data)


def check_implementation(data, output):
    return output == ref_kernel(data), "not the sum"
