"""Where a job runs: the protocol (base), child processes of this machine (local), a Slurm cluster (slurm, with node on
its nodes), and the jobs' folders (folders). Knows commands, files and processes; no kind of problem and no queue.
"""
