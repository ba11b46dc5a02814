"""The sandbox: takes from a process whatever an ordinary Linux user can take, before untrusted code runs in it.

Everything is inherited: once a process has entered, its forks are confined in the same way and share one Landlock
domain, one network and one /dev/shm. Makes system calls through ctypes; knows nothing of ranks. docs/trust.md says what
each layer is for, and what none of them covers.
"""

import contextlib
import ctypes
import fcntl
import os
import resource
import signal
import socket
import struct
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.core.checkout import ROOT
from harness.core.processes import PR_SET_PDEATHSIG
from harness.process import cgroup, link, seccomp

# What a kernel, a compiler or a driver is known to look at. A list of what may stay and not of what must go: nobody
# knows all the names that secrets have. DENIED then takes NVIDIA_API_KEY and its like back out.
ALLOWED = (
    *("CC", "CXX", "HOME", "LANG", "LC_", "LD_", "LIBRARY_PATH", "LOGNAME", "MAX_JOBS", "PATH", "PWD", "SHELL", "TERM"),
    *("TMPDIR", "TZ", "USER", "VIRTUAL_ENV"),
    *("AMD", "CUBLAS", "CUDA", "CUDNN", "FI_", "GLIBC_", "GLOO", "GPU_", "HIP", "HSA", "KMP_", "MALLOC_", "MIOPEN"),
    *("MKL", "NCCL", "NUMBA", "NVIDIA", "NVPL", "NVSHMEM", "OMP", "OPENBLAS", "PYTHON", "PYTORCH", "RCCL", "ROCBLAS"),
    *("ROCM", "ROCR", "TORCH", "TRITON", "UCX"),
)  # names begin with one of these
DENIED = ("AUTH", "COOKIE", "CREDENTIAL", "KEY", "PASS", "SECRET", "TOKEN")
CACHES = {  # of compilers, by the variable that moves them
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TORCH_EXTENSIONS_DIR": "extensions",
    "CUDA_CACHE_PATH": "cuda",
    "XDG_CACHE_HOME": "xdg",
}
LEFT_OUT = "sandbox: left out, {}, so a submission may do whatever its user may"
DEVICES = ("null", "zero", "full", "random", "urandom", "nvidia*", "nvidia*/*", "dri/*", "kfd", "infiniband/*")
MAX_FILE_BYTES = 16 << 30
MAX_OPEN_FILES = 8192
MORE_PROCESSES = 4096  # than the user has; threads count, and eight ranks of torch on a large host have hundreds
SPARE_PART = 16  # of the memory, which no group of ranks may use
PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 4, 24, 38  # linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER = 0x20000, 0x8000000, 0x10000000  # linux/sched.h
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
FIRST_PID = 1  # of a PID namespace
MAX_FDS = 1 << 16
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 0x1, 0x2, 0x4, 0x8, 0x20  # linux/mount.h
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
SIOCSIFFLAGS, IFF_UP = 0x8914, 0x1  # linux/sockios.h, linux/if.h
CAPABILITY_VERSION_3 = 0x20080522  # linux/capability.h
SYS_LANDLOCK_CREATE, SYS_LANDLOCK_ADD, SYS_LANDLOCK_RESTRICT = 444, 445, 446  # the same on every machine
LANDLOCK_VERSION, LANDLOCK_PATH_BENEATH = 1, 1
# linux/landlock.h. Only what changes something is handled, so everything can still be read and run.
WRITE_FILE, TRUNCATE = 1 << 1, 1 << 14
CHANGES = sum(1 << bit for bit in range(4, 13)) | WRITE_FILE  # remove, make; of a folder's files
REFER = 1 << 13
SCOPE_ABSTRACT_SOCKETS, SCOPE_SIGNALS = 1 << 0, 1 << 1
REFER_ABI, TRUNCATE_ABI, SCOPE_ABI = 2, 3, 6
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, kw_only=True)
class Sandbox:
    """Confined processes may write to `folder` and to `cache`, the compile caches. `device` is a --device name. Of the
    folders in `hidden` they see no more than these two, the folders in `shown`, and what Python imports from there; the
    files in `hidden` are empty for them. With `link`, an address, their network has an interface beside its loopback,
    whose descriptor is then in `link_fds`. `refused` are system calls that are refused beside the usual ones."""

    folder: Path
    cache: Path
    device: str
    hidden: tuple[Path, ...] = ()
    shown: tuple[Path, ...] = ()
    link: str = ""
    link_fds: list[int] = field(default_factory=list)
    refused: tuple[seccomp.Syscall, ...] = ()

    @property
    def has_devices(self) -> bool:
        return self.device != "cpu"

    def enter(self, confined: bool = True) -> tuple[str, ...]:
        """Confines this process, which must have one thread, for the rest of its life; without `confined` it only
        gets its folders. Returns a message for each layer that this kernel lacks.

        Returns in a child process where a PID namespace is permitted, because only children are in a new one. The
        caller's process then waits for the child and ends as it does."""
        for folder in (self.folder / "tmp", *(self.cache / name for name in CACHES.values())):
            folder.mkdir(parents=True, exist_ok=True)
        os.environ |= {name: str(self.cache / folder) for name, folder in CACHES.items()}
        os.environ["TMPDIR"] = tempfile.tempdir = str(self.folder / "tmp")
        if not confined:
            return (LEFT_OUT.format("as was asked for (--unconfined)"),)
        if self.device == "rocm":
            # Drivers open many files and find each other in many ways; what of that these layers break is not known
            # there, and a broken driver is worse than a warning.
            return (LEFT_OUT.format("since it has not been tried yet with AMD's GPUs"),)
        lacking = []
        for layer in LAYERS:
            try:
                lacking.append(layer(self))
            except OSError as error:
                lacking.append(f"{layer.__name__.strip('_')}: {error.strerror or error}")
        return tuple(text for text in lacking if text)


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that confined processes may know."""
    return {
        name: value
        for name, value in environ.items()
        if name.startswith(tuple(ALLOWED)) and not any(word in name.upper() for word in DENIED)
    }


def most() -> cgroup.Most:
    """The limits of a group of ranks on this machine, where a cgroup can be made."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cores = tuple(sorted(os.sched_getaffinity(0)))
    return cgroup.Most(cores=cores, memory_bytes=memory - memory // SPARE_PART, tasks=MORE_PROCESSES)


def prctl(option: int, value: int) -> None:
    """The system call, for options that take one number. Raises OSError."""
    _checked("prctl", _libc.prctl(option, value, 0, 0, 0))


def hide(hidden: bool) -> None:
    """Hides this process's memory, descriptors and environment from the user's other processes, or shows them again.
    Processes of root with its capabilities see them all the same. Children inherit it."""
    prctl(PR_SET_DUMPABLE, int(not hidden))


def die_first() -> None:
    """If memory runs out, the kernel is to kill the process that asked for it, not the parent. Children inherit it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def landlock_abi() -> int:
    """The version of Landlock that this kernel has, 0 for none."""
    return max(0, int(_libc.syscall(SYS_LANDLOCK_CREATE, None, ctypes.c_size_t(0), LANDLOCK_VERSION)))


def has_namespaces(sandbox: Sandbox | None = None, own_pids: bool = False) -> bool:
    """Whether namespaces may be created, tried in a child: half of them would be worse than none."""
    if (child := os.fork()) == 0:
        try:
            _enter_namespaces(sandbox or Sandbox(folder=Path("/"), cache=Path("/"), device="cpu"), own_pids)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


# ---- the layers: each does its part and returns what is missing of it, or "" -----------------------------------
def _namespaces(sandbox: Sandbox) -> str:
    """A network with nothing in it but its own loopback, a /dev/shm and System V memory of their own, no process but
    theirs, and nothing of the checkout but what is imported from it."""
    # Ranks on GPUs open device memory that a trusted rank made, and CUDA's IPC handles name processes: they cannot be
    # opened in another PID namespace (https://github.com/openucx/ucx/pull/11514, 2026).
    if not sandbox.has_devices and has_namespaces(sandbox, own_pids=True):
        _enter_namespaces(sandbox, own_pids=True)
        return ""
    if not has_namespaces(sandbox):
        return (
            "namespaces: not permitted here, so a submission has the host's network and its /dev/shm, can name the "
            "user's processes and read the checkout and the logs of contests"
        )
    _enter_namespaces(sandbox, own_pids=False)
    if sandbox.has_devices:
        return ""
    return "namespaces: no PID namespace is permitted here, so a submission can name the user's processes"


def _enter_namespaces(sandbox: Sandbox, own_pids: bool) -> None:
    wanted = CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWNET | (CLONE_NEWPID if own_pids else 0)
    uid, gid = os.getuid(), os.getgid()
    if _libc.unshare(wanted) != 0:
        _checked("unshare", _libc.unshare(wanted | CLONE_NEWUSER))
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    with socket.socket() as sock:
        fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", IFF_UP))
    if sandbox.link:
        sandbox.link_fds.append(link.open_link(sandbox.link))
    if own_pids:
        _fork_first_process()
    _checked("mount", _libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
    _checked("mount", _libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", MS_NOSUID | MS_NODEV, b"mode=1777"))
    if own_pids:
        masked = (Path(line.split()[4]) for line in Path("/proc/self/mountinfo").read_text().splitlines())
        _mount_over(Path("/proc"), "proc", "", [path for path in masked if Path("/proc") in path.parents])
    for folder in filter(Path.is_dir, sandbox.hidden):
        _hide(folder, sandbox)
    for file in filter(os.path.isfile, sandbox.hidden):  # outside of these folders, and within the user's reach
        _checked("mount", _libc.mount(b"/dev/null", os.fsencode(file), None, MS_BIND, None))
    if sandbox.has_devices and uid == 0:
        _freeze_proc()


def _fork_first_process() -> None:
    """Returns in the first process of the new PID namespace. It ends with this process, and all others there with it.
    This process ends with its parent and as the first process does."""
    parent = os.getppid()
    if (first := os.fork()) == 0:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        return
    code = 1
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:  # else it died before the line above
            os.closerange(3, MAX_FDS)
            code = max(0, os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]))
    finally:
        os._exit(code)


def _hide(hidden: Path, sandbox: Sandbox) -> None:
    """In a checkout, other entries' sources, reports, the leaderboard and git's history are not there any more."""
    wanted = [ROOT / "harness", sandbox.folder, sandbox.cache, *sandbox.shown]
    wanted += map(Path, (sys.prefix, sys.base_prefix, *sys.path))
    found: list[Path] = []
    links: dict[Path, str] = {}
    while wanted:
        path = Path(os.path.normpath(Path.cwd() / wanted.pop()))
        if not path.exists():
            continue
        link = next((part for part in (*reversed(path.parents), path) if part.is_symlink()), None)
        if link is not None:  # what it leads to is wanted too: a link from outside may lead in here, and out again
            wanted.append(link.parent / os.readlink(link) / path.relative_to(link))
            if hidden in link.parents:  # made anew
                links[link] = os.readlink(link)
        elif hidden in path.parents:
            found.append(path)
    _mount_over(hidden, "tmpfs", "size=1m,mode=755", [path for path in found if not {*found} & {*path.parents}])
    for link, target in links.items():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
    try:
        os.chdir(os.getcwd())  # out of what lies underneath now
    except FileNotFoundError:
        os.chdir("/")


def _mount_over(target: Path, kind: str, options: str, kept: Iterable[Path]) -> None:
    """Mounts a new file system there. What was in the `kept` places before is there again."""
    held = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in dict.fromkeys(kept)}
    flags = MS_NOSUID | MS_NODEV | (MS_NOEXEC if kind == "proc" else 0)
    _checked("mount", _libc.mount(kind.encode(), os.fsencode(target), kind.encode(), flags, options.encode()))
    for path, fd in held.items():
        if not path.exists():  # a new process's folder is no place to make one
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir() if Path(f"/proc/self/fd/{fd}").is_dir() else path.touch()
        source = f"/proc/self/fd/{fd}".encode()
        _checked("mount", _libc.mount(source, os.fsencode(path), None, MS_BIND | MS_REC, None))
        os.close(fd)


def _freeze_proc() -> None:
    """Makes everything in /proc but processes read-only: the kernel's settings, which are root's even without its
    capabilities. Landlock must let drivers write below /proc (see `_landlock`)."""
    for path in Path("/proc").iterdir():
        if not path.name.isdigit() and not path.is_symlink():
            target = os.fsencode(path)
            _checked("mount", _libc.mount(target, target, None, MS_BIND | MS_REC, None))
            read_only = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC
            _checked("mount", _libc.mount(None, target, None, read_only, None))


def _limits(sandbox: Sandbox) -> str:
    """Resource limits: a mistake, or malice, takes a part of the machine and not all of it."""
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, MAX_FILE_BYTES)
    _limit(resource.RLIMIT_NOFILE, MAX_OPEN_FILES)
    _limit(resource.RLIMIT_NPROC, _tasks() + MORE_PROCESSES)  # the kernel does not count root's
    if not sandbox.has_devices:  # drivers reserve more addresses than any machine has memory
        _limit(resource.RLIMIT_AS, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return ""


def _landlock(sandbox: Sandbox) -> str:
    """No change to any file but theirs, and no access to or signals for processes outside."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    abi = landlock_abi()
    if abi == 0:
        return "landlock: this kernel has none, so a submission may write whatever its user may, and signal the user's"
    changes = CHANGES | (REFER if abi >= REFER_ABI else 0) | (TRUNCATE if abi >= TRUNCATE_ABI else 0)
    scoped = SCOPE_SIGNALS | SCOPE_ABSTRACT_SOCKETS
    words = struct.pack("QQQ", changes, 0, scoped) if abi >= SCOPE_ABI else struct.pack("Q", changes)
    ruleset = _checked("landlock", _libc.syscall(SYS_LANDLOCK_CREATE, words, ctypes.c_size_t(len(words)), 0))
    for folder in (sandbox.folder, sandbox.cache, Path("/dev/shm")):
        _permit(ruleset, folder, changes)
    if sandbox.has_devices:  # CUDA does not start (error 304) where it cannot name its threads, /proc/self/task/*/comm
        _permit(ruleset, Path("/proc"), changes & (WRITE_FILE | TRUNCATE))
    for pattern in DEVICES:
        for device in Path("/dev").glob(pattern):
            if not device.is_dir():
                _permit(ruleset, device, changes & (WRITE_FILE | TRUNCATE))
    _checked("landlock", _libc.syscall(SYS_LANDLOCK_RESTRICT, ruleset, 0))
    os.close(ruleset)
    return "" if abi >= SCOPE_ABI else f"landlock: version {abi}, so a submission may signal the user's processes"


def _permit(ruleset: int, path: Path, access: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            rule = struct.pack("=Qi", access, fd)
            _checked("landlock", _libc.syscall(SYS_LANDLOCK_ADD, ruleset, LANDLOCK_PATH_BENEATH, rule, 0))
        finally:
            os.close(fd)


def _capabilities(sandbox: Sandbox) -> str:
    """Where root evaluates, as in containers: none of what root may beyond an ordinary user."""
    number = 0
    while _libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0) == 0:  # fails behind the last, and for who has none to drop
        number += 1
    header, none = struct.pack("Ii", CAPABILITY_VERSION_3, 0), bytes(24)
    _checked("capset", _libc.capset(header, none))
    return ""


def _seccomp(sandbox: Sandbox) -> str:
    """No system call that changes, traces or copies another process, or has the kernel work for a stopped one."""
    has_own_pids = os.getpid() == FIRST_PID
    more = (() if has_own_pids else seccomp.OF_THREADS) + (() if sandbox.has_devices else seccomp.OF_DESCRIPTORS)
    return seccomp.install(seccomp.ALWAYS + more + sandbox.refused)


# Limits come first, because they count the user's processes, which cannot be seen out of a PID namespace.
LAYERS: tuple[Callable[[Sandbox], str], ...] = (_limits, _namespaces, _landlock, _capabilities, _seccomp)


def _limit(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    value = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (value, value))


def _tasks() -> int:
    count, uid = 0, os.getuid()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if process.stat().st_uid == uid:
                count += len(os.listdir(process / "task"))
    return count


def _checked(what: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what} failed: {os.strerror(number)}")
    return result
