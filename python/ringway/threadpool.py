"""`aiofiles.threadpool` by its name, for programs that import from there."""

from ._open import open
from ._threaded import stderr, stderr_bytes, stdin, stdin_bytes, stdout, stdout_bytes, wrap

__all__ = [
    "open",
    "stderr",
    "stderr_bytes",
    "stdin",
    "stdin_bytes",
    "stdout",
    "stdout_bytes",
    "wrap",
]
