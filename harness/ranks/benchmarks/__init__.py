"""What ranks run of other benchmarks' problems (kinds.benchmarks): inputs, references, judges, adapters. The files that
are staged for such a problem import from here."""
