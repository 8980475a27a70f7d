"""Small file systems in a mount namespace of this process: full ones, read-only ones. Not everybody may have them."""

import ctypes
import os
import subprocess
from pathlib import Path

NEW_MOUNTS, NEW_USER = 0x00020000, 0x10000000


def own_namespace() -> str:
    """Return this process mounts of its own; return why that is not possible, nothing where it is."""
    user, group = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_MOUNTS if user == 0 else NEW_MOUNTS | NEW_USER):
        return f"no mount namespace: {os.strerror(ctypes.get_errno())}"
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    private = _mount("--make-rprivate", "/")
    return "" if private.returncode == 0 else f"mounts cannot be private: {private.stderr.strip()}"


class SmallDisk:
    """A file system in memory of so many bytes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def mount(self, size: int) -> str:
        """Mount it again and empty; return why that is not possible, nothing where it is."""
        self.folder.mkdir(exist_ok=True)
        self.unmount()
        done = _mount("-t", "tmpfs", "-o", f"size={size}", "faults", str(self.folder))
        return "" if done.returncode == 0 else f"no tmpfs: {done.stderr.strip()}"

    def remount(self, option: str) -> bool:
        """Change it, by "ro", "rw" or "size=…"; return whether the system did: no "ro" while a file is written."""
        return _mount("-o", f"remount,{option}", str(self.folder)).returncode == 0

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", str(self.folder)], capture_output=True, check=False)


def _mount(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
