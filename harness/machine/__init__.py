"""What this machine is and whether it can be trusted with a measurement: hardware, GPUs, readings, findings, peaks.
Runs nothing of a submission."""
