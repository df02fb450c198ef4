"""Calibration: what your own measurements say about the coefficients, on top of what is believed before them.

`calibrate` updates all coefficients of a deployment from a handful of points, `Profile` keeps the result in a small
file that every command reads, `three_rates` fits hardware of which nothing is known.

    observation  a measured number in the terms of the equations
    update       the Bayesian update of the coefficients
    calibration  a deployment updated by its points, and what they tell
    advice       which measurement would tell most
    profile      the result in a small file, and as a prior
    rates        three rates, for hardware of which nothing is known
"""

from batchline.calibrate.advice import Advice, advise
from batchline.calibrate.calibration import Calibration, below_bound, calibrate, grid
from batchline.calibrate.observation import Observation, observe
from batchline.calibrate.profile import Profile
from batchline.calibrate.rates import Rates, three_rates

__all__ = [
    "Advice",
    "Calibration",
    "Observation",
    "Profile",
    "Rates",
    "advise",
    "below_bound",
    "calibrate",
    "grid",
    "observe",
    "three_rates",
]
