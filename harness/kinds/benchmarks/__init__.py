"""What the wings for other benchmarks' problems share: kernelbench, parallelkernelbench, trace; and their audit."""
