"""What a fast mode tells of the batch behind it, and what a slow one could save: the lecture's argument [1].

References
----------
[1] R. Pope and D. Patel, lecture on the economics of inference (transcript, dwarkeshsp/flashcards, 2026).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from batchline.roofline import Floats

__all__ = ["fast_mode_batch_ratio", "fast_mode_slope", "slow_mode_saving"]


def fast_mode_batch_ratio(price_ratio: Floats, speed: Floats) -> Floats:
    """How much smaller the batch of a fast mode is, when price follows cost on the same machine.

    Parameters
    ----------
    price_ratio : float or array
        Fast price over normal price [-].
    speed : float or array
        Fast tokens per second and user over normal ones [-].

    Returns
    -------
    float or array
        Normal batch over fast batch [-]: cost per token is t / B, so price ratio = (B1 / B2) / speed.

    Examples
    --------
    >>> fast_mode_batch_ratio(6.0, 2.5), fast_mode_batch_ratio(2.0, 2.5)
    (15.0, 5.0)
    """
    return price_ratio * speed


def fast_mode_slope(batch_ratio: Floats, speed: Floats) -> Floats:
    r"""What part of a step grows with the batch, k B / w, from a fast mode: :math:`(w + k B)/(w + k B / r) = s`.

    Parameters
    ----------
    batch_ratio : float or array
        Normal batch over fast batch r [-].
    speed : float or array
        Normal step over fast step s [-].

    Returns
    -------
    float or array
        k B / w at the normal batch [-]; infinite or negative where no such step exists.

    Examples
    --------
    >>> round(fast_mode_slope(15.0, 2.5), 6), round(fast_mode_slope(5.0, 2.5), 6)
    (1.8, 3.0)
    """
    return (speed - 1.0) / (1.0 - speed / batch_ratio)


def slow_mode_saving(slope: Floats) -> Floats:
    """Most that waiting longer can save: the part of the step that a larger batch shares.

    Parameters
    ----------
    slope : float or array
        k B / w at the present batch [-].

    Returns
    -------
    float or array
        Share of the cost [-].

    Examples
    --------
    >>> round(slow_mode_saving(1.8), 3), slow_mode_saving(3.0)
    (0.357, 0.25)
    """
    return 1.0 / (1.0 + slope)
