"""`aiofiles.threadpool` by its name, for programs that import `open` from there."""

from ._open import open

__all__ = ["open"]
