"""What several tests share."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Whatever the terminal of the one who tests speaks, however wide it is and whether it has colours.
os.environ["BATCHLINE_LANGUAGE"] = "en"
for _name in ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(_name, None)

# A shared machine is slow at times: laws are tested, not speed. The same change is judged by the same examples each
# time; `--hypothesis-profile=thorough` looks for new ones, and longer.
settings.register_profile("default", deadline=None, max_examples=60, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=2000)
settings.load_profile("default")


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder with public measurements and catalogues, beside the project; most users do not have it."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip("the folder of public measurements (shared/ beside the project) is not here")
    return folder


@pytest.fixture(scope="session")
def calibrated() -> str:
    """Text of a profile of llama-3.1-8b on one H100, as `batchline calibrate --out` writes it."""
    from batchline.calibrate import Profile, calibrate
    from batchline.deployment import Deployment
    from batchline.measure import MeasuredPoint

    steps = ((1, 9.1e-3), (16, 11e-3), (64, 16e-3))
    points = [MeasuredPoint(regime="decode", batch=b, context=2048, t_step_s=t) for b, t in steps]
    found = calibrate(points, Deployment.of("llama-3.1-8b", "h100"))
    return Profile.of(found, ["measured.csv"], date="2026-11-30").to_toml()
