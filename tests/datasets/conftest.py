"""The measurements of others, where they are at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def folder_of(source: str) -> Path:
    folder = SHARED_DATA / source
    if not folder.is_dir():
        pytest.skip(f"the measurements of {source} are not beside this checkout")
    return folder


@pytest.fixture(scope="session")
def neusight2025() -> Path:
    return folder_of("neusight2025")


@pytest.fixture(scope="session")
def energaizer2026() -> Path:
    return folder_of("energaizer2026")
