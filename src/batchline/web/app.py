"""The application: addresses of the JSON API and of the page, joined to the library's functions."""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import anyio
import anyio.to_thread
from fastapi import Body, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.routing import Route

from batchline import __version__, accelerator
from batchline.errors import BatchlineError, ConfigError, InputError, MeasurementError, UnknownNameError
from batchline.strings import Sentence, renamed
from batchline.web import compare, downloads, files, look, model, planning, reply, simulating
from batchline.web.guard import Guard, Limits, standard_error
from batchline.web.problem import language_of, problem_body, validation_error
from batchline.web.question import CurveQuery, CurveQuestion, RefusedFieldError, model_of
from batchline.web.remember import Remembered

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

__all__ = ["Settings", "create"]

_LOG = logging.getLogger("batchline.web")
_JSON = "application/json"
_PAGE = "/{name:path}"
_T = TypeVar("_T")
_Q = TypeVar("_Q", bound=BaseModel)
_THREADS = 4
"""Questions worked on at a time in one process: more only take turns at the interpreter."""


@dataclass(frozen=True)
class Settings:
    """How the server runs.

    Parameters
    ----------
    limits : Limits
        Bounds of a request.
    access_log : bool
        A JSON line on stderr for each request.
    remembered_bytes : int
        Answers kept [B].
    """

    limits: Limits = field(default_factory=Limits)
    access_log: bool = True
    remembered_bytes: int = 64 * 2**20

    @classmethod
    def from_environment(cls) -> Settings:
        """Read what `batchline serve` leaves for its workers."""
        hosts = frozenset(name for name in os.environ.get("BATCHLINE_HOSTS", "").casefold().split(",") if name)
        seconds = float(os.environ.get("BATCHLINE_SECONDS", "30"))
        return cls(Limits(hosts=hosts, seconds=seconds), access_log=os.environ.get("BATCHLINE_ACCESS_LOG", "1") == "1")


class ExploreQuestion(BaseModel):
    """A question of the page: the curve, and how it is drawn."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    question: CurveQuestion
    language: Literal["en", "ko"] = "en"
    theme: Literal["light", "dark"] = "light"
    batch_axis: Literal["log", "linear"] = "log"
    charts: Literal["specs", "vega", "data", "moving"] = Field(
        default="data",
        description="specs: whole Vega-Lite specifications; data: what changes in them; moving: the same without the "
        "names of lines and marks, which take a third of a second to place; vega: that together with the plots as "
        "Vega, into which it is to be put.",
    )
    measured: Annotated[list[model.Measured], Field(max_length=2000)] = Field(default_factory=list)


class PlanPageQuestion(BaseModel):
    """A plan as the page asks for it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    question: planning.PlanQuestion
    language: Literal["en", "ko"] = "en"
    theme: Literal["light", "dark"] = "light"
    narrow: bool = Field(default=False, description="Charts for a phone.")

    @property
    def look(self) -> dict[str, Any]:
        """How the charts are drawn."""
        return {"language": self.language, "theme": self.theme, "narrow": self.narrow}


class SimulatePageQuestion(BaseModel):
    """A simulation as the page asks for it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    question: simulating.SimulateQuestion
    language: Literal["en", "ko"] = "en"
    theme: Literal["light", "dark"] = "light"
    narrow: bool = Field(default=False, description="Charts for a phone.")

    @property
    def look(self) -> dict[str, Any]:
        """How the charts are drawn."""
        return {"language": self.language, "theme": self.theme, "narrow": self.narrow}


class Refusal(Exception):  # noqa: N818  (an answer, not a fault)
    """An answer that is an error, with its status."""

    def __init__(self, status: int, error: BatchlineError) -> None:
        self.status = status
        self.error = error
        super().__init__(str(error))


def _refused(request: Request, status: int, error: BatchlineError) -> Response:
    kind = error.kind if isinstance(error, RefusedFieldError) else type(error).__name__
    more: dict[str, Any] = {"kind": kind}
    if isinstance(error, RefusedFieldError):
        more["field"] = error.field
    for name in ("missing_bytes", "smallest_count", "layout"):
        if hasattr(error, name):
            more[name] = getattr(error, name)
    cause = error.cause if isinstance(error, RefusedFieldError) else error
    return Response(problem_body(cause, language_of(request.scope), _FIELDS, **more), status, media_type=_JSON)


def _validation(request: Request, found: RequestValidationError) -> Response:
    """What pydantic found, as one of our errors."""
    error, field = validation_error(found.errors()[0])
    return Response(
        problem_body(error, language_of(request.scope), kind="InputError", field=field), 422, media_type=_JSON
    )


_FIELDS = frozenset(
    name
    for asked in (CurveQuestion, planning.PlanQuestion, planning.PriceQuestion, simulating.SimulateQuestion)
    for name in asked.model_fields
)
"""Names that a question may have, by which errors call what the command line has as options."""

_PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": model.Problem, "description": text}
    for status, text in (
        (400, "Not a request."),
        (413, "Too large."),
        (414, "The address is too long."),
        (421, "Asked under a name that is not this server's."),
        (422, "What was asked cannot be answered; says why and what to do."),
        (503, "Takes too long."),
    )
}


class _Answers:
    """Answers by question: remembered, or worked out in a thread."""

    def __init__(self, settings: Settings) -> None:
        self._kept = Remembered(settings.remembered_bytes)
        self._threads = anyio.CapacityLimiter(_THREADS)

    async def work(self, made: Callable[[], _T]) -> _T:
        return await anyio.to_thread.run_sync(made, limiter=self._threads)

    async def json(self, name: str, question: BaseModel | None, made: Callable[[], Any]) -> Response:
        asked = name.encode() + (b"" if question is None else question.model_dump_json(exclude_unset=True).encode())
        key = hashlib.blake2b(asked, digest_size=24).digest()
        body = self._kept.get(key)
        if body is None:
            body = await self.work(lambda: to_json(made(), inf_nan_mode="null", fallback=_plain))
            self._kept.put(key, body)
        return Response(body, media_type=_JSON)


def _plain(value: Any) -> Any:
    """A number of numpy's as Python's; anything else as text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def create(settings: Settings | None = None) -> Guard:
    """Make the application.

    Parameters
    ----------
    settings : Settings, optional
        How it runs; by default what the environment says.

    Returns
    -------
    Guard
        An ASGI application.
    """
    settings = settings or Settings.from_environment()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        first, others = await anyio.to_thread.run_sync(_warm)
        await explored(first)
        for name, made in _LISTS.items():
            await answers.json(name, None, made)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(explored, others)
            yield
            tasks.cancel_scope.cancel()

    async def explored(questions: list[ExploreQuestion]) -> None:
        for asked in questions:
            await answers.json("explore", asked, functools.partial(_explored, asked))

    answers = _Answers(settings)
    app = FastAPI(
        title="Batchline",
        version=__version__,
        description="Which batch to run, what a token then costs, how long it takes, and why.",
        docs_url=None,  # the usual pages load their scripts from elsewhere; ours is /api
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
        lifespan=lifespan,
    )
    _say_no(app)
    _serve_catalogue(app, answers)
    _serve_curve(app, answers)
    _serve_plans(app, answers)
    _serve_uploads(app, answers)
    _serve_page(app)
    return Guard(app, settings.limits, standard_error() if settings.access_log else None)


_LISTS: dict[str, Callable[[], Any]] = {
    "models": reply.model_records,
    "accelerators": reply.accelerator_records,
    "prices": reply.price_records,
    "choices": reply.choices,
}


def _warm() -> tuple[list[ExploreQuestion], list[ExploreQuestion]]:
    """Load what takes long, and give the questions with which the page begins: as most see it, and in other looks."""
    files.static_files()
    look.words("en")
    question = CurveQuestion(model="llama-3.1-70b", on="4xh100-sxm", context="8192")  # type: ignore[arg-type]
    first = {"question": question, "batch_axis": "log", "measured": []}
    looks = (("en", "light", "vega"), ("en", "light", "data"), ("en", "dark", "vega"), ("ko", "light", "vega"))
    asked = [
        ExploreQuestion(language=language, theme=theme, charts=charts, **first)  # type: ignore[arg-type]
        for language, theme, charts in looks
    ]
    return asked[:2], asked[2:]


def _say_no(app: FastAPI) -> None:
    @app.exception_handler(BatchlineError)
    async def _(request: Request, error: BatchlineError) -> Response:
        return _refused(request, 422, error)

    @app.exception_handler(Refusal)
    async def _(request: Request, refusal: Refusal) -> Response:
        return _refused(request, refusal.status, refusal.error)

    @app.exception_handler(RequestValidationError)
    async def _(request: Request, error: RequestValidationError) -> Response:
        return _validation(request, error)

    @app.exception_handler(HTTPException)
    async def _(request: Request, error: HTTPException) -> Response:
        status, headers = error.status_code, error.headers
        if status in (404, 405) and (taken := _methods(app, request)):
            # The page's own address takes any path, so a GET where only a POST is taken ends there, and finds nothing.
            status, headers = 405, {"allow": ", ".join(taken)}
        what = {404: "serve.no_address", 405: "serve.no_method"}.get(status)
        problem = str(error.detail) if what is None else Sentence(what)
        body = problem_body(InputError(problem, "", Sentence("serve.see_api")), language_of(request.scope))
        return Response(body, status, headers=headers, media_type=_JSON)

    @app.exception_handler(Exception)
    async def _(request: Request, error: Exception) -> Response:
        _LOG.error("%s %s failed", request.method, request.url.path, exc_info=error)
        ours = BatchlineError(Sentence("serve.our_fault"), "", Sentence("serve.see_log"))
        return Response(problem_body(ours, language_of(request.scope)), 500, media_type=_JSON)


def _methods(app: FastAPI, request: Request) -> list[str]:
    """Methods that an address of the API takes."""
    routes = [route for route in app.routes if isinstance(route, Route) and route.path != _PAGE]
    return sorted({name for one in routes if one.path_regex.match(request.scope["path"]) for name in one.methods or ()})


def _serve_catalogue(app: FastAPI, answers: _Answers) -> None:
    @app.get("/health", tags=["operation"], response_model=model.Health, responses=_PROBLEMS)
    async def health() -> dict[str, str]:
        """Say that the server answers."""
        return {"status": "ok", "version": __version__}

    @app.get("/api/v1/models", tags=["catalogue"], response_model=list[model.ModelRow], responses=_PROBLEMS)
    async def models() -> Response:
        """Models that are known by name."""
        return await answers.json("models", None, _LISTS["models"])

    @app.get(
        "/api/v1/models/{name:path}",
        tags=["catalogue"],
        response_model=model.Record,
        responses={**_PROBLEMS, 404: {"model": model.Problem, "description": "No such model."}},
    )
    async def one_model(name: str, query: Annotated[model.ModelQuery, Query()]) -> Response:
        """One model with its sizes at a context, as `batchline show --json` prints them."""
        try:
            found = model_of(name)
        except BatchlineError as error:
            raise Refusal(404, error) from None
        return await answers.json(
            f"model {found.name}", query, lambda: reply.model_record(found, query.context, query.weights, query.kv)
        )

    @app.get("/api/v1/accelerators", tags=["catalogue"], response_model=list[model.AcceleratorRow], responses=_PROBLEMS)
    async def all_accelerators() -> Response:
        """Accelerators that are known by name."""
        return await answers.json("accelerators", None, _LISTS["accelerators"])

    @app.get(
        "/api/v1/accelerators/{name:path}",
        tags=["catalogue"],
        response_model=model.Record,
        responses={**_PROBLEMS, 404: {"model": model.Problem, "description": "No such accelerator."}},
    )
    async def one_accelerator(name: str) -> Response:
        """One accelerator, as `batchline show --json` prints it."""
        try:
            known = accelerator.resolve(name)
        except UnknownNameError as error:
            raise Refusal(404, error) from None
        return await answers.json(f"accelerator {known}", None, lambda: reply.accelerator_record(known))

    @app.get("/api/v1/prices", tags=["catalogue"], response_model=list[model.PriceRow], responses=_PROBLEMS)
    async def all_prices() -> Response:
        """Rental prices with their dates and sources."""
        return await answers.json("prices", None, _LISTS["prices"])

    @app.get("/api/v1/choices", tags=["catalogue"], response_model=model.Choices, responses=_PROBLEMS)
    async def all_choices() -> Response:
        """Number formats, engines and readings that a question may name."""
        return await answers.json("choices", None, _LISTS["choices"])

    @app.get("/api/v1/words", tags=["page"], response_model=dict[str, str], responses=_PROBLEMS)
    async def words(language: Literal["en", "ko"] = "en") -> Response:
        """Texts of the page in a language."""
        return await answers.json(f"words {language}", None, lambda: look.words(language))

    @app.get("/api/v1/compare", tags=["page"], response_model=model.Record, responses=_PROBLEMS)
    async def compare_specs(
        language: Literal["en", "ko"] = "en",
        theme: Literal["light", "dark"] = "light",
        batch_axis: Literal["log", "linear"] = "log",
    ) -> Response:
        """Vega-Lite specifications that lay deployments over each other; the page fills in their curves."""
        key = f"compare {language} {theme} {batch_axis}"
        return await answers.json(key, None, lambda: compare.specs(language, theme, batch_axis))


def _serve_curve(app: FastAPI, answers: _Answers) -> None:
    @app.get(
        "/api/v1/curve",
        tags=["curve"],
        response_model=model.CurveReply,
        responses=_PROBLEMS,
        openapi_extra={"parameters": _parameters(CurveQuery)},
    )
    async def curve_of_address(request: Request) -> Response:
        """Answer what `batchline curve --json` prints; values as on the command line, like `step_limit=20ms`."""
        question = _in_address(CurveQuery, request)
        return await answers.json("curve", question, lambda: reply.curve_reply(question))

    @app.post("/api/v1/curve", tags=["curve"], response_model=model.CurveReply, responses=_PROBLEMS)
    async def curve(question: CurveQuestion) -> Response:
        """Answer what `batchline curve --json` prints; the model may be a config.json."""
        return await answers.json("curve", question, lambda: reply.curve_reply(question))

    @app.post("/api/v1/explore", tags=["curve"], response_model=model.Record, responses=_PROBLEMS)
    async def explore(asked: ExploreQuestion) -> Response:
        """Answer the page: sentences, columns of figures, and the six plots, whole or as what changes in them."""
        return await answers.json("explore", asked, lambda: _explored(asked))

    @app.post(
        "/api/v1/download/{kind}",
        tags=["curve"],
        response_class=Response,
        responses={**_PROBLEMS, 200: {"content": {kind: {} for kind in downloads.TYPES.values()}}},
    )
    async def download(kind: Literal["png", "svg", "html", "csv", "toml", "json"], asked: ExploreQuestion) -> Response:
        """Give the six plots as a picture, the figures as a table, or the question as a file."""
        body = await answers.work(lambda: downloads.made(kind, asked.question, _look(asked)))
        name = f'attachment; filename="batchline.{kind}"'
        return Response(body, media_type=downloads.TYPES[kind], headers={"content-disposition": name})


def _in_address(kind: type[_Q], request: Request) -> _Q:
    """Read a question from an address, all fields at once: FastAPI reads one by one, for a quarter of a millisecond."""
    query = request.query_params
    asked = {name: values if len(values := query.getlist(name)) > 1 else values[0] for name in query}
    try:
        return kind.model_validate(asked)
    except ValidationError as error:
        raise RequestValidationError([{**one, "loc": ("query", *one["loc"])} for one in error.errors()]) from None


def _parameters(kind: type[BaseModel]) -> list[dict[str, Any]]:
    """Describe the fields that an address may have."""
    schema = kind.model_json_schema()
    return [
        {
            "name": name,
            "in": "query",
            "required": name in schema["required"],
            "description": field["description"],
            "schema": {key: value for key, value in field.items() if (key, value) != ("default", None)},
        }
        for name, field in schema["properties"].items()
    ]


def _serve_plans(app: FastAPI, answers: _Answers) -> None:
    @app.post("/api/v1/plan", tags=["plan"], response_model=model.Record, responses=_PROBLEMS)
    async def plan(asked: PlanPageQuestion) -> Response:
        """Find the cheapest deployment that keeps the promise: as `batchline plan --json`, drawn and ready to start."""
        return await answers.json("plan", asked, lambda: planning.planned(asked.question, **asked.look))

    @app.post("/api/v1/plan/flips", tags=["plan"], response_model=model.Record, responses=_PROBLEMS)
    async def flips(asked: PlanPageQuestion) -> Response:
        """Say what would make another deployment the cheapest; takes some seconds."""
        return await answers.json("flips", asked, lambda: planning.flipped(asked.question, **asked.look))

    @app.post("/api/v1/price", tags=["plan"], response_model=model.Record, responses=_PROBLEMS)
    async def price(
        asked: planning.PriceQuestion,
        language: Literal["en", "ko"] = "en",
        theme: Literal["light", "dark"] = "light",
        narrow: Annotated[bool, Query(description="The chart for a phone.")] = False,
    ) -> Response:
        """Derive a price sheet from what tokens cost, as `batchline price --json`, and draw it as Vega-Lite."""
        key = f"price {language} {theme} {narrow}"
        return await answers.json(key, asked, lambda: planning.priced(asked, language, theme, narrow=narrow))

    @app.post("/api/v1/simulate", tags=["simulation"], response_model=model.Record, responses=_PROBLEMS)
    async def simulate(asked: SimulatePageQuestion) -> Response:
        """Serve traffic event by event: `batchline simulate --json`, with series and percentiles as Vega-Lite."""
        return await answers.json("simulate", asked, lambda: simulating.simulated(asked.question, **asked.look))


def _look(asked: ExploreQuestion) -> dict[str, Any]:
    return {
        "language": asked.language,
        "theme": asked.theme,
        "batch_axis": asked.batch_axis,
        "measured": [point.model_dump() for point in asked.measured],
    }


def _explored(asked: ExploreQuestion) -> dict[str, Any]:
    return reply.explored(asked.question, charts=asked.charts, **_look(asked))


def _serve_uploads(app: FastAPI, answers: _Answers) -> None:
    @app.post("/api/v1/config", tags=["files"], response_model=model.Record, responses=_PROBLEMS)
    async def config(content: Annotated[dict[str, Any], Body()]) -> Response:
        """Read a config.json: the same record as of a model of the catalogue."""
        found = await answers.work(lambda: downloads.config_record(content))
        return Response(to_json(found, inf_nan_mode="null", fallback=_plain), media_type=_JSON)

    @app.post(
        "/api/v1/measured",
        tags=["files"],
        response_model=model.MeasuredReply,
        responses=_PROBLEMS,
        openapi_extra={"requestBody": {"content": {"text/plain": {"schema": {"type": "string"}}}, "required": True}},
    )
    async def measured(request: Request, name: Annotated[str, Query(max_length=200)] = "results") -> Response:
        """Read a result file of vLLM, SGLang, TensorRT-LLM, GuideLLM, AIPerf, llama.cpp or our own into points."""
        content = await request.body()
        found = await answers.work(lambda: _points(content, name))
        return Response(to_json(found, inf_nan_mode="null", fallback=_plain), media_type=_JSON)


def _points(content: bytes, name: str) -> dict[str, Any]:
    """Read an upload with the library's readers, which take a file; its name is used in messages only."""
    from batchline import measure  # noqa: PLC0415
    from batchline.measure import hazards  # noqa: PLC0415

    shown = (
        "".join(c for c in Path(name.replace("\\", "/")).name if c.isprintable() and c not in "<>\"'&")[:80]
        or "results"
    )
    with tempfile.TemporaryDirectory(prefix="batchline-") as folder:
        file = Path(folder) / "upload"
        file.write_bytes(content)
        try:
            points = measure.read(file)
        except BatchlineError as error:
            problem = renamed(renamed(error.problem, str(file), shown), "upload", shown)
            raise MeasurementError(problem, error.allowed, error.hint) from None
        except RecursionError:
            raise ConfigError(Sentence("serve.nested", what=shown)) from None
    if len(points) > 2000:
        many = Sentence("serve.many_points", file=shown, count=f"{len(points):,}")
        raise InputError(many, Sentence("serve.most_points"), Sentence("serve.split"))
    rows = []
    for point, found in zip(points, hazards.inspect(points), strict=True):
        named = [{"name": one.name, "evidence": one.evidence, "excludes": one.excludes} for one in found]
        rows.append({**point.to_dict(), "t_step_s": point.step_s, "hazards": named})
    return {"file": shown, "points": rows}


def _serve_page(app: FastAPI) -> None:
    pages = {"": "index.html", "api": "api.html"}

    @app.get(_PAGE, include_in_schema=False)
    async def page(name: str, request: Request) -> Response:
        found = files.static_files().get(pages.get(name, name))
        if found is None:
            raise HTTPException(404)
        headers = {"etag": found.tag, "cache-control": "no-cache", "vary": "accept-encoding"}
        if request.headers.get("if-none-match") == found.tag:
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers["content-encoding"] = "gzip"
            return Response(found.packed, headers=headers, media_type=found.media_type)
        return Response(found.body, headers=headers, media_type=found.media_type)
