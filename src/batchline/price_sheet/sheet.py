"""The sheet: a line for each kind of token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from batchline import cost, market
from batchline.errors import InputError
from batchline.notebook import Shown
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["PriceSheet", "Row"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a price sheet.

    Parameters
    ----------
    name : str
        "input", "output", "cached input", "cache write 5 min", "output, 131k context", "output, fast", ...
    usd_per_mtok_cost, usd_per_mtok_price : float
        Cost, and price at the margin [USD/Mtoken].
    times_base : float
        Over the plain input or output [-].
    why : str
        Where it comes from.
    usd_per_mtok_cost_low, usd_per_mtok_cost_high : float or None
        Cost at the ends of the step's 90% interval; None where no step is predicted: input, and the bound [USD/Mtoken].
    """

    name: str
    usd_per_mtok_cost: float
    usd_per_mtok_price: float
    times_base: float
    why: str
    usd_per_mtok_cost_low: float | None = None
    usd_per_mtok_cost_high: float | None = None


@dataclass(frozen=True, kw_only=True)
class PriceSheet(Shown):
    """What each kind of token costs on a deployment, and what to charge.

    Parameters
    ----------
    title : str
        The deployment.
    usd_per_hour : float
        Price of the deployment [USD/h].
    isl, osl : float
        Input and output length of the plain request [token].
    rows : tuple of Row
        Lines.
    batch : float
        Sequences decoded together at the plain price [sequence].
    tpot_s : float
        Time per output token there [s].
    utilisation, margin : float
        Share of the time that the machine is busy, and of the price that is profit [-].
    balance_context : float or None
        Context from which on reading the KV cache takes longer than computing: from here on context decides cost
        [token].
    notes : tuple of str
        What could not be had.
    """

    title: str
    usd_per_hour: float
    isl: float
    osl: float
    rows: tuple[Row, ...]
    batch: float
    tpot_s: float
    utilisation: float
    margin: float
    balance_context: float | None
    notes: tuple[str, ...]

    def row(self, name: str) -> Row:
        """One line by its name.

        Parameters
        ----------
        name : str
            Of the line.

        Returns
        -------
        Row
            The line.

        Raises
        ------
        InputError
            There is no such line.
        """
        for one in self.rows:
            if one.name == name:
                return one
        raise InputError(
            Sentence("error.no_line", name=repr(name)),
            Sentence("error.it_has", names=", ".join(one.name for one in self.rows)),
        )

    def at_full_use(self) -> cost.TokenCosts:
        """What the plain request costs on a machine that is never idle, as `batchline.market.compare` takes it.

        Returns
        -------
        TokenCosts
            Cost of its input and output.
        """
        second = self.usd_per_hour / 3600.0
        prompt_s, decode_s = (
            self.row(name).usd_per_mtok_cost * self.utilisation * tokens / 1e6 / second
            for name, tokens in (("input", self.isl), ("output", self.osl))
        )
        return cost.token_costs(self.usd_per_hour, prompt_s, decode_s, self.isl, self.osl)

    def beside(self, offers: Sequence[market.Offer]) -> list[market.Comparison]:
        """Compare the plain request, on a machine that is never idle, with what APIs ask for it.

        Parameters
        ----------
        offers : sequence of Offer
            What `batchline.market.offers` gave.

        Returns
        -------
        list of Comparison
            Cheapest API first.
        """
        return market.compare(self.at_full_use(), self.usd_per_hour, offers, self.isl, self.osl)

    def to_dict(self) -> dict[str, Any]:
        """Give everything, with the names of the JSON output.

        Returns
        -------
        dict
            `rows` and the scalars.
        """
        return {**vars(self), "rows": [vars(one) for one in self.rows], "notes": list(self.notes)}
