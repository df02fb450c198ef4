"""What `vllm bench serve` and SGLang's `bench_serving`, which grew out of it, both write of a run."""

from __future__ import annotations

from typing import Any, Final

from pydantic import AliasChoices, Field, NonNegativeFloat, PositiveFloat

from batchline.measure.document import Foreign, agree
from batchline.measure.point import LITTLE, decoding

__all__ = ["BY_MEANS", "CONVERTED", "MILLISECONDS", "Run"]

CONVERTED: Final = (LITTLE, "context = isl + osl / 2")
BY_MEANS: Final = "tokens per chunk = mean ITL / mean TPOT"
MILLISECONDS: Final = "milliseconds to seconds"


class Run(Foreign):
    """A run; totals are of all requests that were completed."""

    backend: str = ""
    max_concurrency: float | None = None
    duration: PositiveFloat
    completed: int = Field(ge=0)
    total_input: float = Field(validation_alias=AliasChoices("total_input_tokens", "total_input"))
    total_output: float = Field(validation_alias=AliasChoices("total_output_tokens", "total_output"))
    request_throughput: NonNegativeFloat
    output_throughput: NonNegativeFloat
    mean_ttft_ms: NonNegativeFloat
    median_ttft_ms: NonNegativeFloat
    mean_tpot_ms: NonNegativeFloat
    median_tpot_ms: NonNegativeFloat
    std_tpot_ms: NonNegativeFloat | None = None
    mean_itl_ms: NonNegativeFloat
    median_itl_ms: NonNegativeFloat

    @property
    def isl(self) -> float:
        """Mean input length [token]."""
        return self.total_input / self.completed

    @property
    def osl(self) -> float:
        """Mean output length [token]."""
        return self.total_output / self.completed

    @property
    def tokens_per_chunk(self) -> float | None:
        """Tokens of a stream event, by the means [token]."""
        return self.mean_itl_ms / self.mean_tpot_ms if self.mean_tpot_ms and self.mean_itl_ms else None

    def check_rates(self, file: str) -> None:
        """Hold both throughputs against totals and duration.

        Parameters
        ----------
        file : str
            Name for messages.

        Raises
        ------
        MeasurementError
            One of them does not agree.
        """
        tokens, requests = self.total_output / self.duration, self.completed / self.duration
        agree(file, "output_throughput", self.output_throughput, tokens, "total_output_tokens / duration")
        agree(file, "request_throughput", self.request_throughput, requests, "completed / duration")

    def facts(self) -> dict[str, Any]:
        """Give what both tools know of a point.

        Returns
        -------
        dict
            Arguments of `MeasuredPoint`.
        """
        return {
            "regime": "serving",
            "batch": decoding(self.request_throughput, self.osl, self.mean_tpot_ms / 1e3),
            "context": self.isl + self.osl / 2,
            "tpot_s": self.median_tpot_ms / 1e3 or None,
            "tpot_mean_s": self.mean_tpot_ms / 1e3 or None,
            "itl_s": self.median_itl_ms / 1e3 or None,
            "ttft_s": self.median_ttft_ms / 1e3,
            "ttft_mean_s": self.mean_ttft_ms / 1e3,
            "concurrency": self.max_concurrency,
            "isl": self.isl,
            "osl": self.osl,
            "requests_per_s": self.request_throughput,
            "output_tokens_per_s": self.output_throughput or None,
            "duration_s": self.duration,
            "completed": self.completed,
            "spread": self.std_tpot_ms / self.mean_tpot_ms if self.std_tpot_ms and self.mean_tpot_ms else None,
            "statistic": "median",
            "arrival": "closed_loop" if self.max_concurrency else "rate",
        }
