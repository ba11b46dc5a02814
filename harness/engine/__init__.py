"""Where a job runs: the protocol (base), child processes of this machine (local), a Slurm cluster (slurm, with node on
its nodes), the jobs' folders (folders), and a fake for tests (fake). Knows commands, files and processes; no kind of
problem and no queue.
"""
