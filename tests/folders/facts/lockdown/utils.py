import subprocess


def lock_clocks():
    """Theirs: sudo -n nvidia-smi --lock-gpu-clocks=..., which exits with 1 where that is not allowed."""
    subprocess.run(["sh", "-c", "exit 1"], check=True)
