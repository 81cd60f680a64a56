"""Which system calls a program in the sandbox may make, and the filter of them, `system_calls.bpf`, that bubblewrap is
given.

What Python needs is allowed, and all else is told as not there (ENOSYS), for which C libraries have another way. The
filter is a program of the kernel's packet filter, the same for x86_64 and aarch64; programs for other processors, and
the 32 bit calls of these, end the process. It is made by libseccomp, after a change here:
`pip install pyseccomp && python -m core.tasks.system_calls`.
"""

from __future__ import annotations

import errno
import platform
from pathlib import Path
from typing import Any, Literal, NamedTuple

FILTER = Path(__file__).with_name("system_calls.bpf")
MACHINES = ("x86_64", "aarch64")

#: By what they are for. Some are on one of the two machines alone.
_ALLOWED = {
    "open files": """
        read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek close close_range dup dup2 dup3
        fcntl flock fsync fdatasync ftruncate fallocate fadvise64 sync_file_range sendfile copy_file_range pipe pipe2
        fstat fstatfs fchmod fchown fchdir getdents getdents64""",
    "files by their names": """
        open openat creat access faccessat faccessat2 stat lstat newfstatat statx statfs readlink readlinkat truncate
        mkdir mkdirat rmdir unlink unlinkat rename renameat renameat2 link linkat symlink symlinkat chmod fchmodat
        fchmodat2 chown lchown fchownat utime utimes futimesat utimensat umask getcwd chdir
        getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr setxattr lsetxattr fsetxattr removexattr
        lremovexattr fremovexattr""",
    "memory": "brk mmap munmap mremap mprotect madvise mincore msync mlock mlock2 munlock membarrier",
    "processes and threads": """
        fork vfork execve exit exit_group wait4 waitid kill tkill tgkill getpid getppid gettid getpgid getpgrp setpgid
        getsid setsid set_tid_address set_robust_list get_robust_list rseq futex restart_syscall
        sched_yield sched_getaffinity sched_setaffinity sched_getparam sched_getscheduler sched_get_priority_max
        sched_get_priority_min getpriority setpriority getrlimit setrlimit prlimit64 getrusage times getcpu""",
    "signals": """
        rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend rt_sigqueueinfo
        rt_tgsigqueueinfo sigaltstack pause alarm getitimer setitimer""",
    "time": "time gettimeofday clock_gettime clock_getres clock_nanosleep nanosleep",
    "waiting": """
        poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd
        eventfd2""",
    "sockets, of those that can be made": """
        connect bind listen accept accept4 getsockname getpeername getsockopt setsockopt sendto recvfrom sendmsg recvmsg
        sendmmsg recvmmsg shutdown""",
    "who and where": """
        getuid geteuid getgid getegid getresuid getresgid getgroups capget uname sysinfo getrandom""",
}
#: CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET of clone(2).
_NAMESPACES = 0x7E020000
_AF_UNIX = 1
_KIND_OF_FILE, _FIFO = 0o170000, 0o010000
_LOW = 0xFFFFFFFF  # what the kernel looks at, of an argument that is an int
#: TCGETS and TCGETS2 (is it a terminal?), TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX and FIOCLEX; and FICLONE, for which
#: copying has another way where a file system has it not.
_IOCTLS = (0x5401, 0x802C542A, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
_FICLONE = 0x40049409
#: Of prctl(2): PDEATHSIG, GET_ and SET_DUMPABLE, SET_ and GET_NAME, SET_VMA (names of memory).
_PRCTLS = (1, 3, 4, 15, 16, 0x53564D41)
#: ARCH_SET_FS and ARCH_GET_FS of arch_prctl(2), which is how x86_64 has memory of each thread.
_ARCH_PRCTLS = (0x1002, 0x1003)


class Rule(NamedTuple):
    """A system call that is allowed, or refused with an error number, where the argument at this place (from 0), after
    the mask (None: all 64 bits), is this value, or is not."""

    call: str
    place: int
    test: Literal["is", "is not"]
    value: int
    mask: int | None = _LOW
    refused: int = 0


RULES = (
    Rule("clone", 0, "is", 0, mask=_NAMESPACES),
    *(Rule(name, 0, "is", _AF_UNIX, mask=None) for name in ("socket", "socketpair")),
    *(
        Rule(name, 0, "is not", _AF_UNIX, mask=None, refused=errno.EAFNOSUPPORT)
        for name in ("socket", "socketpair")
    ),
    Rule("mknod", 1, "is", _FIFO, mask=_KIND_OF_FILE),
    Rule("mknodat", 2, "is", _FIFO, mask=_KIND_OF_FILE),
    *(Rule("ioctl", 1, "is", request) for request in _IOCTLS),
    Rule("ioctl", 1, "is", _FICLONE, refused=errno.EOPNOTSUPP),
    *(Rule("prctl", 0, "is", option) for option in _PRCTLS),
    *(Rule("arch_prctl", 0, "is", option) for option in _ARCH_PRCTLS),
)


def allowed() -> tuple[str, ...]:
    """The system calls that are allowed whatever their arguments are."""
    return tuple(name for names in _ALLOWED.values() for name in names.split())


def fits_here() -> bool:
    """Whether the filter is made for this machine's processor."""
    return platform.machine() in MACHINES


def make_filter(path: Path) -> None:
    """Write the filter's program. ImportError without pyseccomp, RuntimeError without libseccomp 2.5."""
    import pyseccomp as seccomp

    made = seccomp.SyscallFilter(seccomp.ERRNO(errno.ENOSYS))
    made.remove_arch(seccomp.system_arch())
    for machine in (seccomp.Arch.X86_64, seccomp.Arch.AARCH64):
        made.add_arch(machine)
    made.set_attr(seccomp.Attr.ACT_BADARCH, seccomp.KILL_PROCESS)
    made.set_attr(seccomp.Attr.CTL_OPTIMIZE, 2)  # found in a tree and not one after the other
    for name in allowed():
        made.add_rule(seccomp.ALLOW, name)
    for rule in RULES:
        action = seccomp.ERRNO(rule.refused) if rule.refused else seccomp.ALLOW
        made.add_rule(action, rule.call, _argument(seccomp, rule))
    with path.open("wb") as file:
        made.export_bpf(file)


def _argument(seccomp: Any, rule: Rule) -> Any:
    if rule.mask is None:
        return seccomp.Arg(rule.place, seccomp.EQ if rule.test == "is" else seccomp.NE, rule.value)
    return seccomp.Arg(rule.place, seccomp.MASKED_EQ, rule.mask, rule.value)


if __name__ == "__main__":
    make_filter(FILTER)
