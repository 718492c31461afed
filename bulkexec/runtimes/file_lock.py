"""A lock that the operating system gives free when its process ends, however it ends."""

import fcntl
import os
from pathlib import Path


class FileLock:
    """An exclusive lock on `path`, held between processes of one machine. The file says who holds it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def acquire(self, holder: str) -> str | None:
        """Take the lock: None when it is ours now, else what its holder has written there. Raises OSError."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                other = os.read(file, 200).decode(errors="replace")
                os.close(file)
                return other
            if self._still_there(file):
                os.ftruncate(file, 0)
                os.write(file, holder.encode())
                self._file = file
                return None
            os.close(file)

    def _still_there(self, file: int) -> bool:
        """Whether the locked file is the one a next process would open: its holder may just have taken it away."""
        try:
            return self._path.stat().st_ino == os.fstat(file).st_ino
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Give it free and take the file away."""
        if self._file is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = None
