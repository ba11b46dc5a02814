"""A real Slurm on this machine, as whoever runs the tests: one slurmctld, and a slurmd for each node that is played."""

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

CONTROLLER = "slurmctld"
PROGRAMS = (CONTROLLER, "slurmd", "sbatch", "squeue", "scontrol", "scancel")
PLACES = "/usr/sbin:/sbin"  # where Debian has the daemons, which are not on every user's path
INSTALL = "sudo apt-get install --no-install-recommends slurmctld slurmd slurm-client"
IDLE_S = 30.0
CONFIGURATION = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MailProg=/bin/true
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=2
ReturnToService=2
SlurmdTimeout=6
KillWait=2
MinJobAge=60
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """Why no cluster can be played here; "" if one can."""
    path = f"{os.environ['PATH']}:{PLACES}"
    lacking = [program for program in PROGRAMS if shutil.which(program, path=path) is None]
    return f"no {', '.join(lacking)} here; {INSTALL}" if lacking else ""


class Cluster:
    """The daemons, their folder and their configuration file, which SLURM_CONF has to name."""

    def __init__(self, folder: Path, nodes: Sequence[str], cores: int) -> None:
        self.folder, self.nodes, self.configuration = folder, nodes, folder / "slurm.conf"
        (folder / "state").mkdir(parents=True)
        host = socket.gethostname().partition(".")[0]
        ports = _free_ports(1 + len(nodes))
        lines = [
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cores} RealMemory=1000"
            for name, port in zip(nodes, ports[1:], strict=True)
        ]
        self.configuration.write_text(
            CONFIGURATION.format(
                host=host, port=ports[0], user=getpass.getuser(), folder=folder, nodes="\n".join(lines)
            )
        )
        self.environ = os.environ | {
            "SLURM_CONF": str(self.configuration),
            "PATH": f"{os.environ['PATH']}:{PLACES}",
        }
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Returns when all nodes are idle. Raises RuntimeError if they are not soon."""
        self.start_controller()
        for node in self.nodes:
            self.start_node(node)
        until = time.monotonic() + IDLE_S
        while set(self.asked("sinfo", "--noheader", "--Node", "--format=%t").split()) != {"idle"}:
            if time.monotonic() > until:
                logs = "\n".join(path.read_text()[-2000:] for path in self.folder.glob("*.log"))
                raise RuntimeError(f"the cluster did not get idle:\n{logs}")
            time.sleep(0.2)

    def start_controller(self) -> None:
        self._start(CONTROLLER, CONTROLLER, "-D")

    def start_node(self, node: str) -> None:
        self._start(node, "slurmd", "-D", "-N", node)

    def stop_controller(self) -> None:
        """As before an update; it saves what it knows."""
        daemon = self.daemons.pop(CONTROLLER)
        daemon.terminate()
        daemon.wait(IDLE_S)

    def kill(self, name: str) -> None:
        """The controller, or a node with all that runs there."""
        daemon = self.daemons.pop(name)
        daemon.kill()
        if name != CONTROLLER:
            for number in (signal.SIGSTOP, signal.SIGKILL):  # at once: else one tells how another ended
                for pid in self.of_node(name):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
        daemon.wait()

    def of_node(self, node: str) -> list[int]:
        """The processes of the jobs that run on that node."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                variables = path.read_bytes().split(b"\0")
            except OSError:
                continue
            if (
                f"SLURMD_NODENAME={node}".encode() in variables
                and f"SLURM_CONF={self.configuration}".encode() in variables
            ):
                found.append(int(path.parent.name))
        return found

    def asked(self, *command: str) -> str:
        """What a command of Slurm's prints."""
        ran = subprocess.run(command, env=self.environ, capture_output=True, text=True, timeout=60, check=False)
        return ran.stdout

    def stop(self) -> None:
        self.asked("scancel", f"--user={getpass.getuser()}")
        time.sleep(0.5)
        for name in list(self.daemons):
            self.kill(name)

    def _start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as out:
            self.daemons[name] = subprocess.Popen(
                command, env=self.environ, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
