"""What every request asks of an engine, and the times that follow: the formulas of this package, at a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from batchline.queueing import company_wait, left_behind, prompt_wait, slot_wait
from batchline.serving.speculation import tokens_per_step
from batchline.step import decode_step, prefill

if TYPE_CHECKING:
    from batchline.roofline import Floats
    from batchline.serving.speculation import Speculation
    from batchline.step import Coefficients, Ideal, Terms

__all__ = ["Load", "Pace"]


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast an engine goes in the open loop when so many sequences decode on average.

    Parameters
    ----------
    tpot_s : float or array
        Time per output token [s].
    busy_s : float or array
        Time of a rank that one prompt takes from those who decode [s].
    prompt_s : float or array
        Time that a prompt takes itself [s].
    behind : float or array
        Prompts that mine leaves in the queue, computed before I go on [request].
    requests_per_s : float or array
        Load of the whole deployment [1/s].
    grows : float or array
        Share of `tpot_s` that the batch causes [-].
    peakedness : float or array
        Variance over mean of the sequences of a rank [-]: more than 1 as a slower token keeps more requests present, as
        in processor sharing, and by a for bursts.
    """

    tpot_s: Floats
    busy_s: Floats
    prompt_s: Floats
    behind: Floats
    requests_per_s: Floats
    grows: Floats
    peakedness: Floats


@dataclass(frozen=True, slots=True)
class Load:
    """What every request asks of an engine, and the times that follow: the formulas of this package.

    Parameters
    ----------
    ideal : Ideal
        Ideal times at the mean context, with the attention of a prompt.
    coefficients : Coefficients
        What the engine makes of them.
    isl, osl : float or array
        Input and output length [token].
    prefix_hit_rate : float or array
        Share of prompt tokens found in the prefix cache [-].
    speculation : Speculation, optional
        Speculative decoding.
    admission_interval : float or array
        The engine looks for new requests every so many steps; 0 where before each [step].
    interferes : bool
        Whether prompts are computed beside the decoding; not on a decode pool.
    prompt_elsewhere_s : float or array, optional
        Time of a prompt that another pool computes [s].
    slower : float or array
        Times over the predicted ones, for an engine that misses its prediction [-].
    arrival_scv, length_scv : float or array
        Squared coefficients of variation of the gaps between arrivals and of the output lengths, in the open loop [-].
    """

    ideal: Ideal
    coefficients: Coefficients
    isl: Floats
    osl: Floats
    prefix_hit_rate: Floats = 0.0
    speculation: Speculation | None = None
    admission_interval: Floats = 0.0
    interferes: bool = True
    prompt_elsewhere_s: Floats | None = None
    slower: Floats = 1.0
    arrival_scv: Floats = 1.0
    length_scv: Floats = 0.0

    @property
    def _rank_scv(self) -> Floats:
        """Of the gaps between arrivals at one rank: each takes one request in turn."""
        return self.arrival_scv / self.ideal.dp

    def terms(self, batch: Floats) -> Terms:
        """Parts of a decode step, as predicted [s]."""
        tokens = 1 if self.speculation is None else self.speculation.draft_tokens + 1
        return decode_step(self.ideal, self.coefficients, batch, tokens_per_sequence=tokens)

    def step_s(self, batch: Floats) -> Floats:
        """Decode step with its drafts [s]."""
        spec = self.speculation
        return self.slower * (self.terms(batch).total + (0.0 if spec is None else spec.draft_s * spec.draft_tokens))

    def prompt_s(self, batch: Floats, prompts: Floats = 1.0) -> Floats:
        """Time that one prompt, or several in one step, adds [s]."""
        if self.prompt_elsewhere_s is not None:
            return self.prompt_elsewhere_s + 0.0 * batch
        fresh = 1.0 - np.asarray(self.prefix_hit_rate)[()]
        # Tokens found in the cache need no work, but the others attend to them: 1 - h^2 of a causal triangle stays.
        attention = self.ideal.prompt_attention_s * fresh * (2.0 - fresh) * prompts
        tokens = self.isl * fresh * prompts
        added = prefill(self.ideal, self.coefficients, tokens, attention_s=attention, batch=batch, prompts=prompts)
        return self.slower * added.total

    def interference_s(self, batch: Floats) -> Floats:
        """What the prompts of the others in a batch add to a token [s]."""
        others = np.maximum(batch / self.ideal.dp - 1.0, 0.0) if self.interferes else 0.0
        return self.coefficients.prefill_share * others / self.osl * self.prompt_s(batch) / self.ideal.pp

    def tpot_s(self, batch: Floats) -> Floats:
        """Time per output token in a batch, the request itself included [s]."""
        return self.step_s(batch) / self.yield_per_step() + self.interference_s(batch)

    def yield_per_step(self) -> Floats:
        """Tokens that a step yields for a sequence [token]."""
        return 1.0 if self.speculation is None else tokens_per_step(self.speculation)

    def first_steps(self, budget: Floats | None) -> Floats:
        """Decode steps that a new request waits for its first token [step]."""
        chunks = 0.0 if budget is None else np.ceil(self.isl * (1.0 - self.prefix_hit_rate) / budget)
        known = self.coefficients
        return np.maximum(known.ttft_steps, chunks) + known.admission_wait * self.admission_interval

    def pace(self, batch: Floats, alone_s: Floats | None = None) -> Pace:
        """How fast it goes in the open loop.

        Parameters
        ----------
        batch : float or array
            Sequences that decode on average [sequence].
        alone_s : float or array, optional
            Time per output token of a request alone, where a search has it already [s].

        Returns
        -------
        Pace
            TPOT, load, and what they are made of.
        """
        plain = self.tpot_s(batch + self.arrival_scv)
        prompt = self.prompt_s(batch)
        busy = self.coefficients.prefill_share * prompt / self.ideal.pp * (1.0 if self.interferes else 0.0)
        behind = left_behind(batch / self.ideal.dp, self.osl * plain, busy, self._rank_scv)
        tpot = plain + behind * busy / self.osl
        grows = np.clip(1.0 - (self.tpot_s(self.ideal.dp) if alone_s is None else alone_s) / tpot, 0.0, 1.0 - 1e-9)
        # Of many servers with service alike, arrivals of variation a keep a times as much variance; half of it more
        # when service is exponential (Whitt: heavy-traffic peakedness).
        uneven = 1.0 + (self._rank_scv - 1.0) / (1.0 + self.length_scv)
        return Pace(tpot, busy, prompt, behind, batch / (self.osl * tpot), grows, uneven / (1.0 - grows))

    def first_s(self, pace: Pace, budget: Floats | None = None) -> Floats:
        """Time to the first token in the open loop, without the waits.

        Parameters
        ----------
        pace : Pace
            Of the batch that decodes.
        budget : float or array, optional
            Chunked-prefill token budget of a step [token].

        Returns
        -------
        float or array
            Seconds [s]: the steps that it waits, as long as those between tokens; its prompt; those that end with it.
        """
        beside = company_wait(pace.requests_per_s / self.ideal.dp, pace.busy_s, self._rank_scv)
        return self.coefficients.ttft_constant + self.first_steps_s(pace, budget) + pace.prompt_s + beside

    def first_steps_s(self, pace: Pace, budget: Floats | None) -> Floats:
        """Time of the steps that a new request waits for in the open loop: each as long as between tokens [s]."""
        return self.first_steps(budget) * pace.tpot_s * self.yield_per_step()

    def busy_s(self, max_num_batched_tokens: Floats) -> Floats:
        """Time of a rank that a prompt takes where nothing is decoded and steps are full of prompts [s].

        Prompts of one step read the experts once.
        """
        fresh = np.maximum(self.isl * (1.0 - np.asarray(self.prefix_hit_rate)), 1.0)
        together = np.maximum(max_num_batched_tokens / fresh, 1.0)
        return self.prompt_s(0.0, together) / together / self.ideal.pp

    def prompt_alone_s(
        self, rate: Floats, percentile: float | None = None, max_num_batched_tokens: Floats = 8192
    ) -> Floats:
        """Time of a prompt with its waits where nothing is decoded.

        Parameters
        ----------
        rate : float or array
            Requests that arrive [1/s].
        percentile : float, optional
            Percentile of the wait for the prompts before mine; None for the mean.
        max_num_batched_tokens : float or array
            Token budget of a step [token].

        Returns
        -------
        float or array
            Seconds [s]; infinite when prompts arrive faster than they are computed.
        """
        prompt, each = self.prompt_s(0.0), rate / self.ideal.dp
        busy = self.busy_s(max_num_batched_tokens)
        before = prompt_wait(each, busy, self._rank_scv, percentile)
        return prompt + before + company_wait(each, busy, self._rank_scv)

    def waits_s(
        self, batch: Floats, pace: Pace, slots: Floats, full_tpot_s: Floats, percentile: float | None = None
    ) -> tuple[Floats, Floats]:
        """Wait for the prompts before mine, and for a free slot.

        Parameters
        ----------
        batch : float or array
            Sequences that decode on average [sequence].
        pace : Pace
            Of this batch.
        slots : float or array
            Sequences that may decode together in the whole deployment [sequence].
        full_tpot_s : float or array
            Time per output token while all slots are taken [s].
        percentile : float, optional
            Percentile of each wait; None for the mean.

        Returns
        -------
        tuple of float or array
            Seconds [s].
        """
        dp = self.ideal.dp
        return (
            prompt_wait(pace.requests_per_s / dp, pace.busy_s, self._rank_scv, percentile),
            slot_wait(
                batch / dp,
                slots / dp,
                self.osl * pace.tpot_s,
                self.osl * full_tpot_s,
                peakedness=pace.peakedness,
                arrival_scv=self._rank_scv,
                service_scv=self.length_scv,
                percentile=percentile,
            ),
        )
