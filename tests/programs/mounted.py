"""A file system of manylogs fs mount on an image of its own, for programs that test it."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time

ADOPTED = ("manylogs", "manylogs+lazy", "adaptive")
LIMIT = 120  # seconds that a mount or an unmount may take
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


def run(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


class Mounted:
    """An image in a directory `place`, mounted below it until the end of the block."""

    def __init__(self, manylogs, place, mode, options, size, inodes):
        self.manylogs, self.mode, self.options = manylogs, mode, options
        self.image, self.root = f"{place}/image", f"{place}/root"
        os.makedirs(self.root)
        with open(self.image, "wb") as image:
            image.truncate(size)
        run("mkfs.ext4", "-q", "-F", "-b", "4096", "-N", str(inodes), self.image)
        if mode in ADOPTED:
            run(manylogs, "fs", "adopt", "--yes", self.image)

    def __enter__(self):
        # Whoever ends this program early leaves nothing mounted.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
        try:
            self.mount()
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return self

    def mount(self):
        run(self.manylogs, "fs", "mount", self.image, self.root, "--mode", self.mode, "-o",
            self.options, "--background", timeout=LIMIT)

    def status(self):
        status = run(self.manylogs, "fs", "status", self.root, "--json", timeout=LIMIT)
        return json.loads(status)["server"]

    def requests(self):
        """How many requests the kernel has sent."""
        kinds = self.status()["file_system"]["kernel_requests"]
        return sum(kind["requests"] for kind in kinds)

    def resident_mib(self):
        """The most memory that the server had, in MiB."""
        with open(f"/proc/{self.status()['pid']}/status") as status:
            line = next(line for line in status if line.startswith("VmHWM:"))
        return int(line.split()[1]) >> 10

    def unmount(self):
        run(self.manylogs, "fs", "unmount", self.root, timeout=LIMIT)

    def judge(self):
        """Unmounts, and has e2fsck look at the disk."""
        self.unmount()
        if self.mode in ADOPTED:
            run(self.manylogs, "fs", "release", self.image, timeout=LIMIT)
        run("e2fsck", "-fn", self.image)

    def __exit__(self, kind, *_):
        if kind is not None:
            # Also what a dead server leaves, of which os.path.ismount says that it is no mount.
            subprocess.run(["umount", "-l", self.root], capture_output=True)
        if os.path.exists(self.image):
            os.remove(self.image)


def kill_all(children):
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def wait_for(children, seconds, what):
    """Waits until all have ended; what they say ends this program. Kills them if it takes long."""
    until, bad, left = time.monotonic() + seconds, 0, sorted(children)
    while left and time.monotonic() < until:
        pid, code = os.waitpid(left[-1], os.WNOHANG)
        if pid == 0:
            time.sleep(0.01)
            continue
        left.pop()
        bad += code != 0
    kill_all(left)
    if left:
        raise SystemExit(f"{len(left)} {what} hang after {seconds} s")
    if bad:
        raise SystemExit(f"{bad} {what} found something wrong")


def fork(work, *arguments):
    """Runs `work` in a new process, which ends with 1 after an exception."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    # None goes on without the parent, which would find the mount in use.
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        work(*arguments)
        code = 0
    except BaseException as error:  # whatever it is, this process must not go on as its parent
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)
