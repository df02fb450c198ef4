"""A profile: the calibrated coefficients of one deployment in a small file, and the priors with them put in.

    schema = "batchline.profile/1"
    [deployment]      what was measured
    [fit]             when, from which files, how many points, errors before and after
    [coefficients]    mean and standard deviation of each, in the unit of the equations

`Profile.prior()` stands wherever priors do. It speaks for the cluster that was measured (model, accelerator, engine,
weight format); another layout of it is told as new, another KV format is moved by what the priors say of the two, and
everything else is left to the priors.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from batchline import __version__, prior, readings
from batchline.calibrate.calibration import QUANTILES
from batchline.errors import ConfigError
from batchline.prior import Case, Prior, Provenance
from batchline.step import Coefficients
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from batchline.calibrate.calibration import Calibration
    from batchline.calibrate.observation import Observation
    from batchline.calibrate.rates import Rates
    from batchline.deployment import Deployment

__all__ = ["MOST_BYTES", "SCHEMA", "CalibratedPrior", "Profile"]

SCHEMA: Final = "batchline.profile/1"

MOST_BYTES: Final = 2**18
"""Longest profile that is read [B]: a hundred times what `save` writes of a few files."""

_HEAD = """\
# What a deployment makes of the ideal times, by its own measurements. Written by `batchline calibrate`.
# Every command reads it: batchline curve MODEL --on ... --profile THIS. Coefficients: docs/calibrate.md.
"""
_NAMES: Final = tuple(field.name for field in dataclasses.fields(Coefficients))
_AT_LEAST_ONE: Final = frozenset(
    name for name in _NAMES if getattr(Coefficients(), name) == 1.0 and name != "prefill_share"
)
_FIGURES: Final = ("bandwidth", "flops", "memory")
_CASE: Final = (
    "engine",
    "engine_version",
    "model",
    "accelerator",
    "generation",
    "weights",
    "kv",
    "layout",
    "attention",
)


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Calibrated coefficients of one deployment, with where they come from.

    Parameters
    ----------
    case : prior.Case
        What was measured, by the names of the priors.
    count : int
        Devices [device].
    mean, sd : mapping of str to float
        Coefficients and their standard deviations, in the units of `step.Coefficients`.
    spread : mapping of str to float
        Standard deviation of the log of a prediction of "tpot" and "ttft" [-].
    points : int
        Measured points behind it [-].
    files : tuple of str
        Their files, by name.
    date : str
        Day of the calibration, ISO.
    errors : mapping of str to float
        Median errors: "before", "after", "left_out" of TPOT [-]; only what is known.
    figures : mapping of str to float
        Bandwidth, FLOP/s and memory of one device, where the points had to tell the first two [B/s, FLOP/s, B].
    source : str
        What stood before the points.
    unidentified : tuple of str
        Coefficients that the points tell nothing of although they move a step: there the priors speak.
    advice : str
        The measurement that would tell most, as a sentence.
    """

    case: Case
    count: int
    mean: Mapping[str, float]
    sd: Mapping[str, float]
    spread: Mapping[str, float]
    points: int
    files: tuple[str, ...]
    date: str
    errors: Mapping[str, float]
    figures: Mapping[str, float] = dataclasses.field(default_factory=lambda: MappingProxyType({}))
    source: str = ""
    unidentified: tuple[str, ...] = ()
    advice: str = ""

    @classmethod
    def of(
        cls,
        calibration: Calibration,
        files: Iterable[str] = (),
        date: str = "",
        *,
        targets: Sequence[Observation] | None = None,
        advice: str = "",
    ) -> Profile:
        """Keep a calibration.

        Parameters
        ----------
        calibration : Calibration
            What was found.
        files : iterable of str
            Where the points were read.
        date : str
            Day, ISO; by default today.
        targets : sequence of Observation, optional
            What is to be predicted; by default decode steps over the usual batches and contexts.
        advice : str
            The measurement that would tell most (`advise`), as a sentence.

        Returns
        -------
        Profile
            For `save` and `prior`.
        """
        found = calibration.coefficients
        errors = {when: calibration.errors(when=when).median for when in ("before", "after", "left_out")}
        return cls(
            case=readings.case_of(calibration.deployment),
            count=calibration.deployment.count,
            mean={name: float(getattr(found, name)) for name in _NAMES},
            sd=calibration.sd(),
            spread={of: calibration.total_spread(of) for of in ("tpot", "ttft")},
            points=calibration.points,
            files=_file_names(files),
            date=date or _today(),
            errors={name: value for name, value in errors.items() if not math.isnan(value)},
            source=calibration.prior_source,
            unidentified=tuple(calibration.unidentified(targets)),
            advice=advice,
        )

    @classmethod
    def of_rates(cls, rates: Rates, deployment: Deployment, points: int, files: Iterable[str] = ()) -> Profile:
        """Keep three rates: the faster of the two bandwidths stands for the device's, the other becomes a coefficient.

        Parameters
        ----------
        rates : Rates
            What was found.
        deployment : Deployment
            Made of the device's figures (`Rates.figures`).
        points : int
            Measured points behind it [-].
        files : iterable of str
            Where they were read.

        Returns
        -------
        Profile
            Nothing is known of prefill and links: there it is the ideal.
        """
        figures = rates.figures | {"memory": deployment.accelerator.memory}
        engine = dataclasses.replace(
            Coefficients(prefill_share=1.0, step_overhead=rates.constant_s),
            weight_read=max(1.0, figures["bandwidth"] / rates.bandwidth),
            expert_read=max(1.0, figures["bandwidth"] / rates.bandwidth),
            kv_read=max(1.0, figures["bandwidth"] / rates.kv_bandwidth),
        )
        off = max(0.05, 1.4826 * rates.left_out.median)
        return cls(
            case=readings.case_of(deployment),
            count=deployment.count,
            mean=dataclasses.asdict(engine),
            sd=dict.fromkeys(_NAMES, 0.0),
            spread={"tpot": off, "ttft": max(off, 0.5)},
            points=points,
            files=_file_names(files),
            date=_today(),
            errors={"after": rates.after.median, "left_out": rates.left_out.median},
            figures=figures,
            source="three rates and a constant, no prior",
        )

    def coefficients(self) -> Coefficients:
        """Give the coefficients of the deployment that was measured.

        Returns
        -------
        Coefficients
            Their means, in the units of `step.Coefficients`.
        """
        return Coefficients(**self.mean)

    def prior(self, base: Prior | None = None) -> CalibratedPrior:
        """Priors that know this deployment.

        Parameters
        ----------
        base : Prior, optional
            Priors for everything else; by default those that the package ships.

        Returns
        -------
        CalibratedPrior
            For `priors=` of readings, planner and price sheet.
        """
        base = base or prior.load()
        values = {field.name: getattr(base, field.name) for field in dataclasses.fields(Prior)}
        return CalibratedPrior(**values, profile=self, base=base)

    def save(self, path: str | Path) -> None:
        """Write the file.

        Parameters
        ----------
        path : str or Path
            Where to; it is replaced.
        """
        Path(path).write_text(self.to_toml(), encoding="utf-8")

    def to_toml(self) -> str:
        """Text of the file.

        Returns
        -------
        str
            TOML.
        """
        case = self.case
        facts = {name: getattr(case, name) for name in _CASE}
        lines = [
            _HEAD,
            f"schema = {_text(SCHEMA)}",
            "",
            "[deployment]",
            *(f"{name} = {_text(value)}" for name, value in facts.items()),
            f"is_mla = {str(case.is_mla).lower()}",
            f"count = {self.count}",
            *(f"{name} = {value:.6g}" for name, value in self.figures.items()),
            "",
            "[fit]",
            f"date = {_text(self.date)}",
            f"batchline = {_text(__version__)}",
            f"prior = {_text(self.source)}",
            f"points = {self.points}",
            f"files = [{', '.join(map(_text, self.files))}]",
            *(f"error_{name} = {value:.4f}" for name, value in self.errors.items()),
            *(f"spread_{of} = {value:.4f}" for of, value in self.spread.items()),
            f"unidentified = [{', '.join(map(_text, self.unidentified))}]",
            *([f"advice = {_text(self.advice)}"] if self.advice else []),
            "",
            "[coefficients]",
            *(f"{name} = {{ mean = {self.mean[name]:.6g}, sd = {self.sd.get(name, 0.0):.3g} }}" for name in _NAMES),
        ]
        return "\n".join(lines) + "\n"

    @classmethod
    def parse(cls, data: str | bytes, name: str = "profile") -> Profile:
        """Read the text of a file that `save` wrote, from wherever it comes.

        Parameters
        ----------
        data : str or bytes
            TOML; bytes are UTF-8.
        name : str
            What to call it in errors.

        Returns
        -------
        Profile
            Checked: no coefficient makes an engine faster than the bound.

        Raises
        ------
        ConfigError
            It is too long, is no profile, or a field of it cannot be; names the field.
        """
        if len(data) > MOST_BYTES:
            raise ConfigError(
                Sentence("error.profile_size", name=name, bytes=f"{len(data):,}"),
                Sentence("error.profile_most", most=f"{MOST_BYTES:,}"),
            )
        try:
            found = tomllib.loads(data.decode() if isinstance(data, bytes) else data)
        except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
            raise _unreadable(name, error) from error
        if found.get("schema") != SCHEMA:
            raise ConfigError(
                Sentence("error.profile_schema", name=name, given=repr(found.get("schema"))),
                Sentence("error.profile_reads", schema=SCHEMA),
                Sentence("error.calibrate_again"),
            )
        return _Reader(name, found).profile()

    @classmethod
    def load(cls, path: str | Path) -> Profile:
        """Read a file that `save` wrote.

        Parameters
        ----------
        path : str or Path
            The file.

        Returns
        -------
        Profile
            Checked: no coefficient makes an engine faster than the bound.

        Raises
        ------
        ConfigError
            The file is missing, is no profile, or a field of it cannot be; names the field.
        """
        try:
            with Path(path).open("rb") as file:
                data = file.read(MOST_BYTES + 1)
        except OSError as error:
            raise _unreadable(str(path), error) from error
        return cls.parse(data, str(path))


def _unreadable(name: str, error: Exception) -> ConfigError:
    return ConfigError(
        Sentence("error.profile_unreadable", name=name, reason=str(error)), "", Sentence("error.make_profile")
    )


class _Reader:
    """Takes fields out of a profile and names the one that is wrong."""

    def __init__(self, path: str, data: Mapping[str, Any]) -> None:
        self.path, self.data = path, data

    def table(self, name: str) -> Mapping[str, Any]:
        found = self.data.get(name)
        if not isinstance(found, dict):
            raise ConfigError(
                Sentence("error.profile_table", name=self.path, table=name), "", Sentence("error.calibrate_again")
            )
        return found

    def _wrong(self, what: str, given: str, allowed: str) -> ConfigError:
        problem = Sentence("error.profile_value", name=self.path, what=what, given=given)
        return ConfigError(problem, allowed, Sentence("error.calibrate_again"))

    def number(self, table: Mapping[str, Any], name: str, least: float = 0.0) -> float:
        value = table.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._wrong(name, repr(value), Sentence("error.is_number"))
        if not math.isfinite(value) or value < least:
            raise self._wrong(name, f"{value:g}", Sentence("error.is_finite", least=f"{least:g}"))
        return float(value)

    def text(self, table: Mapping[str, Any], name: str) -> str:
        value = table.get(name)
        if not isinstance(value, str):
            raise self._wrong(name, repr(value), Sentence("error.is_text"))
        return value

    def names(self, table: Mapping[str, Any], name: str) -> tuple[str, ...]:
        found = table.get(name, [])
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise self._wrong(name, repr(found), Sentence("error.is_names"))
        return tuple(found)

    def profile(self) -> Profile:
        deployment, fit, rows = (self.table(name) for name in ("deployment", "fit", "coefficients"))
        for name in rows:
            if name not in _NAMES:
                raise ConfigError(
                    Sentence("error.profile_no_coefficient", name=self.path, given=repr(name)),
                    "",
                    Sentence("error.calibrate_again"),
                )
        cells = {name: self.cell(rows, name) for name in _NAMES}
        errors = [name for name in ("before", "after", "left_out") if f"error_{name}" in fit]
        return Profile(
            case=Case(
                **{name: self.text(deployment, name) for name in _CASE}, is_mla=deployment.get("is_mla", False) is True
            ),
            count=int(self.number(deployment, "count", 1)),
            mean={name: mean for name, (mean, _) in cells.items()},
            sd={name: sd for name, (_, sd) in cells.items()},
            spread={of: self.number(fit, f"spread_{of}") for of in ("tpot", "ttft")},
            points=int(self.number(fit, "points")),
            files=self.names(fit, "files"),
            date=self.text(fit, "date"),
            errors={name: self.number(fit, f"error_{name}") for name in errors},
            figures={name: self.number(deployment, name) for name in _FIGURES if name in deployment},
            source=self.text(fit, "prior"),
            unidentified=self.names(fit, "unidentified"),
            advice=self.text(fit, "advice") if "advice" in fit else "",
        )

    def cell(self, rows: Mapping[str, Any], name: str) -> tuple[float, float]:
        row = rows.get(name)
        if not isinstance(row, dict):
            raise ConfigError(
                Sentence("error.profile_coefficient", name=self.path, given=name), "", Sentence("error.calibrate_again")
            )
        least = 1.0 if name in _AT_LEAST_ONE else 0.0
        try:
            return self.number(row, "mean", least), self.number(row, "sd")
        except ConfigError as error:
            problem = Sentence("error.of_coefficient", name=name, problem=error.problem)
            raise ConfigError(problem, error.allowed, error.hint) from None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CalibratedPrior(Prior):
    """Priors with the coefficients of one measured deployment put in.

    Parameters
    ----------
    centres, levels, seen, intervals, source, points
        As of `Prior`.
    profile : Profile
        What was measured.
    base : Prior
        What is believed of everything else.
    """

    profile: Profile
    base: Prior

    def knows(self, case: Case) -> bool:
        """Say whether the profile speaks for a case.

        Parameters
        ----------
        case : Case
            Engine, accelerator, formats, layout.

        Returns
        -------
        bool
            True of the same model, accelerator, engine and weight format.
        """
        return case.cluster == self.profile.case.cluster

    def coefficients(self, case: Case) -> Coefficients:
        """As of `Prior`; measured where the profile speaks."""
        if not self.knows(case):
            return self.base.coefficients(case)
        return _moved(self.profile, self.base, case)

    def novelty(self, case: Case) -> str:
        """As of `Prior`; "lengths" where the profile was measured, "deployment" for another layout of it."""
        if not self.knows(case):
            return self.base.novelty(case)
        same = case.layout == self.profile.case.layout and case.kv == self.profile.case.kv
        return "lengths" if same else "deployment"

    def provenance(self, case: Case) -> Provenance:
        """As of `Prior`; the profile's points and date where it speaks."""
        if not self.knows(case):
            return self.base.provenance(case)
        fields = {"date": self.profile.date, "files": ", ".join(self.profile.files)}
        said = ("calibrated_from" if self.profile.files else "calibrated", fields)
        return Provenance(said, self.profile.points, self.novelty(case), ())

    def interval(self, case: Case, of: str = "tpot", confidence: float = 0.9) -> tuple[float, float]:
        """As of `Prior`; from the posterior where the profile was measured."""
        if not self.knows(case) or self.novelty(case) != "lengths" or confidence not in QUANTILES:
            return self.base.interval(case, of, confidence)
        factor = math.exp(QUANTILES[confidence] * self.profile.spread[of])
        return 1.0 / factor, factor


def _moved(profile: Profile, base: Prior, case: Case) -> Coefficients:
    """Coefficients of the profile; for another layout or KV format moved as the priors of the two differ."""
    measured, asked = base.coefficients(profile.case), base.coefficients(case)
    values = {}
    for name, mean in profile.mean.items():
        offset = 1.0 if name in _AT_LEAST_ONE else 0.0
        before, after = float(getattr(measured, name)) - offset, float(getattr(asked, name)) - offset
        ratio = after / before if before > 0.0 and after > 0.0 else 1.0
        values[name] = offset + (mean - offset) * ratio
    return Coefficients(**values)


def _file_names(files: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(Path(file).name for file in files))


def _today() -> str:
    return dt.datetime.now(tz=dt.UTC).date().isoformat()


def _text(value: str) -> str:
    """TOML string; JSON's escapes are TOML's."""
    return json.dumps(value, ensure_ascii=False)
