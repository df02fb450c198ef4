"""What several tests share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder with public measurements and catalogues, beside the project; most users do not have it."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip("the folder of public measurements (shared/ beside the project) is not here")
    return folder
