"""What tools say of the package: types, and style."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "command",
    [
        ["mypy"],
        ["mypy", "tests/typing_cases.py"],
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
    ],
    ids=lambda command: " ".join(command),
)
def test_tools_find_nothing(command: list[str]) -> None:
    result = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=1800
    )
    assert result.returncode == 0, result.stdout + result.stderr
