// The evaluator. The stand-in for nvcc does not read it.
