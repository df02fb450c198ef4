"""One OpenAI-compatible endpoint: a streamed request, timed, and every way in which it can fail, said in words.

The number of tokens comes from the server's own `usage`; there is no tokenizer here. A key is taken from the
environment, sent to this endpoint only, and never printed: it is struck out of whatever the server answers.
"""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit, urlunsplit

import httpx
import numpy as np

from batchline.errors import MeasurementError, UnknownNameError
from batchline.measure.streams import Stream
from batchline.strings import Sentence

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["KEY_VARIABLES", "Answer", "Endpoint", "EndpointError", "Served", "key_from_environment"]

KEY_VARIABLES: Final = ("BATCHLINE_API_KEY", "OPENAI_API_KEY")
_CONNECT_S: Final = 10.0
_LONGEST_MESSAGE: Final = 300

# What servers say when prompt and answer do not fit: vLLM, SGLang, llama-server, TensorRT-LLM, OpenAI.
_TOO_LONG: Final = re.compile(
    r"context|too long|too large|exceed|maximum.*(?:length|token)|max_seq_len|max_model_len", re.IGNORECASE
)


class EndpointError(MeasurementError):
    """An endpoint that does not answer as it should.

    Parameters
    ----------
    kind : str
        `refused`, `key`, `model`, `path`, `stream`, `usage`, `context`, `rate`, `server`, `request`.
    problem, allowed, hint : str
        As in `batchline.errors.BatchlineError`.
    wait_s : float
        How long the server asks to wait [s].
    """

    def __init__(self, kind: str, problem: str, allowed: str = "", hint: str = "", *, wait_s: float = 0.0) -> None:
        self.kind = kind
        self.wait_s = wait_s
        super().__init__(problem, allowed, hint)


@dataclass(frozen=True, slots=True)
class Answer:
    """One streamed answer.

    Parameters
    ----------
    stream : Stream
        When it was sent and when its tokens came; token counts by `usage`.
    cached_tokens : float
        Prompt tokens that the server took from a cache [token].
    """

    stream: Stream
    cached_tokens: float


@dataclass(frozen=True, slots=True)
class Served:
    """What the endpoint says of the model it serves.

    Parameters
    ----------
    model : str
        Its name.
    engine : str
        `vllm`, `sglang`, `llama.cpp` or as the server names itself; empty when it does not.
    max_context : int or None
        Longest context [token].
    """

    model: str
    engine: str = ""
    max_context: int | None = None


def key_from_environment() -> str | None:
    """Take the key of the endpoint from `BATCHLINE_API_KEY` or `OPENAI_API_KEY`.

    Returns
    -------
    str or None
        The key; None when neither is set.
    """
    return next((os.environ[name] for name in KEY_VARIABLES if os.environ.get(name)), None)


def _base(url: str) -> tuple[str, str]:
    """Base address without credentials and query, and the API that the path names."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise MeasurementError(Sentence("error.no_endpoint", url=repr(url)), "", Sentence("error.write_endpoint"))
    path, api = parts.path.rstrip("/"), ""
    for ending, named in (("/chat/completions", "chat"), ("/completions", "completions")):
        if path.endswith(ending):
            path, api = path.removesuffix(ending), named
            break
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, path or "/v1", "", "")), api


@dataclass
class Endpoint:
    """An endpoint with its open connections; use it with `async with`.

    Parameters
    ----------
    url : str
        Address, with or without /v1.
    api : str
        `completions`, `chat`, or `auto`: completions where there is one.
    key : str or None
        Bearer key.
    """

    url: str
    api: str = "auto"
    key: str | None = field(default=None, repr=False)
    _client: httpx.AsyncClient = field(init=False, repr=False)
    _extra: dict[str, Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.url, named = _base(self.url)
        if self.api == "auto" and named:
            self.api = named
        if self.api not in ("auto", "completions", "chat"):
            raise UnknownNameError("API", self.api, ["auto", "completions", "chat"])
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        # Redirects are not followed: a key must not travel to another host.
        self._client = httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(None, connect=_CONNECT_S),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
        )
        # Engines that know ignore_eos (vLLM, SGLang, TensorRT-LLM, llama-server) then give every token asked for.
        # Temperature 1: greedy answers repeat themselves, and a repeated token always takes the same experts.
        self._extra = {"ignore_eos": True, "temperature": 1.0}
        self._limit = "max_tokens"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def served(self, model: str | None) -> Served:
        """Ask which model is served.

        Parameters
        ----------
        model : str or None
            The one to use; None for the only one there is.

        Returns
        -------
        Served
            Its name, the engine and the longest context as far as the server says so.

        Raises
        ------
        EndpointError
            Nobody answers, the key is refused, or the model is not served.
        """
        try:
            response = await self._client.get(f"{self.url}/models")
        except httpx.HTTPError as error:
            raise self._transport(error) from None
        if response.status_code in (401, 403):
            raise self._status(response.status_code, response.text, response.headers, model or "")
        cards = self._cards(response)
        if model is None:
            if len(cards) != 1:
                names = ", ".join(card["id"] for card in cards)
                raise EndpointError(
                    "model",
                    Sentence("error.model_not_named"),
                    Sentence("error.served", names=names) if names else "",
                    Sentence("error.give_model"),
                )
            model = cards[0]["id"]
        card = next((card for card in cards if card["id"] == model), {})
        owner = str(card.get("owned_by", ""))
        meta = card.get("meta") or {}
        longest = card.get("max_model_len") or meta.get("n_ctx") or meta.get("n_ctx_train")
        return Served(
            model,
            {"llamacpp": "llama.cpp", "openai": ""}.get(owner, owner),
            longest if isinstance(longest, int) else None,
        )

    @staticmethod
    def _cards(response: httpx.Response) -> list[dict[str, Any]]:
        try:
            cards = response.json()["data"]
        except (ValueError, KeyError, TypeError):
            return []
        return [card for card in cards if isinstance(card, dict) and isinstance(card.get("id"), str)]

    async def ask(self, model: str, prompt: str, max_tokens: int) -> Answer:
        """Send one request and time its stream.

        Parameters
        ----------
        model : str
            Name of the model.
        prompt : str
            Text of the prompt.
        max_tokens : int
            Tokens to answer [token].

        Returns
        -------
        Answer
            The stream and its counts.

        Raises
        ------
        EndpointError
            It failed; `kind` says how.
        """
        if self.api == "auto":
            try:
                answer = await self._ask("completions", model, prompt, max_tokens)
            except EndpointError as error:
                if error.kind != "path":
                    raise
                answer = await self._ask("chat", model, prompt, max_tokens)
                self.api = "chat"
                return answer
            self.api = "completions"
            return answer
        return await self._ask(self.api, model, prompt, max_tokens)

    async def _ask(self, api: str, model: str, prompt: str, max_tokens: int) -> Answer:
        body: dict[str, Any] = {"model": model, "stream": True, "stream_options": {"include_usage": True}}
        body |= {"prompt": prompt} if api == "completions" else {"messages": [{"role": "user", "content": prompt}]}
        path = "completions" if api == "completions" else "chat/completions"
        for _ in range(len(self._extra) + 2):
            try:
                return await self._stream(
                    f"{self.url}/{path}", {**body, self._limit: max_tokens, **self._extra}, api, max_tokens
                )
            except EndpointError as error:
                if error.kind != "request" or not self._without(error.problem):
                    raise
        raise EndpointError("request", Sentence("error.no_form"))

    def _without(self, message: str) -> bool:
        """Leave out what the server says it does not know; False when nothing is left to change."""
        if self._limit in message and "max_completion_tokens" in message and self._limit != "max_completion_tokens":
            self._limit = "max_completion_tokens"
            return True
        named = [name for name in self._extra if name in message]
        for name in named:
            del self._extra[name]
        return bool(named)

    async def _stream(self, url: str, body: dict[str, Any], api: str, max_tokens: int) -> Answer:
        start = time.perf_counter()
        events: list[tuple[float, str]] = []
        try:
            async with self._client.stream("POST", url, json=body) as response:
                if response.status_code != httpx.codes.OK:
                    text = (await response.aread()).decode("utf-8", "replace")
                    raise self._status(response.status_code, text, response.headers, str(body["model"]))
                if "event-stream" not in response.headers.get("content-type", ""):
                    raise EndpointError(
                        "stream",
                        Sentence(
                            "error.no_stream",
                            url=url,
                            given=response.headers.get("content-type", "?"),
                        ),
                        Sentence("error.needs_stream"),
                        Sentence("error.collecting_proxy"),
                    )
                async for line in response.aiter_lines():
                    if not line.startswith("data:"):
                        continue
                    now, data = time.perf_counter(), line[5:].strip()
                    if data == "[DONE]":
                        break
                    events.append((now, data))
                    if len(events) > 2 * max_tokens + 64:
                        raise EndpointError(
                            "server", Sentence("error.no_end", count=f"{len(events):,}", most=f"{max_tokens:,}")
                        )
        except httpx.HTTPError as error:
            raise self._transport(error, begun=bool(events)) from None
        return _answer(start, events, api)

    def _transport(self, error: httpx.HTTPError, *, begun: bool = False) -> EndpointError:
        if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
            return EndpointError(
                "refused",
                Sentence("error.nobody_answers", url=self.url, reason=self._clean(str(error))),
                "",
                Sentence("error.server_up"),
            )
        what = "error.answer_broken_off" if begun else "error.connection_broken_off"
        return EndpointError("server", Sentence(what, reason=self._clean(str(error) or type(error).__name__)))

    def _clean(self, text: str) -> str:
        text = " ".join(text.split())
        if self.key:
            text = text.replace(self.key, "***")
        # Some servers repeat a key with its middle struck out.
        text = re.sub(r"\b(?:sk|hf|nvapi)-\S+", "***", text)
        return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}..."

    def _status(self, status: int, text: str, headers: httpx.Headers, model: str) -> EndpointError:
        said = self._clean(_message(text))
        if status in (401, 403):
            refused = Sentence("error.key_refused" if self.key else "error.key_needed", status=f"{status}")
            return EndpointError("key", refused, "", Sentence("error.set_key", names=" or ".join(KEY_VARIABLES)))
        if status in (404, 405):
            if "model" in said.casefold():
                return EndpointError(
                    "model",
                    Sentence("error.model_not_served", model=repr(model), status=f"{status}", said=said),
                    "",
                    Sentence("error.models_listed"),
                )
            return EndpointError(
                "path",
                Sentence("error.no_path", url=self.url, status=f"{status}", said=said),
                "",
                Sentence("error.write_to_v1"),
            )
        if status == 429:
            wait = headers.get("retry-after", "")
            return EndpointError(
                "rate",
                Sentence("error.rate_limited", said=f"{said or status}"),
                "",
                Sentence("error.smaller_batches"),
                wait_s=float(wait) if wait.isdigit() else 1.0,
            )
        if status >= 500:
            return EndpointError(
                "server", Sentence("error.server_failed", status=f"{status}", said=said or f"{status}")
            )
        if 300 <= status < 400:
            return EndpointError(
                "path",
                Sentence("error.sends_elsewhere", url=self.url, given=self._clean(headers.get("location", ""))),
                "",
                Sentence("error.give_that_address"),
            )
        if "stream_options" in said:
            return EndpointError(
                "usage",
                Sentence("error.no_stream_usage", said=said),
                "",
                Sentence("error.update_for_usage"),
            )
        if not any(name in said for name in self._extra) and _TOO_LONG.search(said):
            return EndpointError("context", Sentence("error.does_not_fit_context", said=said))
        return EndpointError("request", Sentence("error.request_refused", status=f"{status}", said=said))


def _message(text: str) -> str:
    """Find the sentence in an error body."""
    try:
        body = json.loads(text)
    except ValueError:
        return re.sub(r"<[^>]*>", " ", text)
    for key in ("error", "message", "detail"):
        if isinstance(body, dict) and key in body:
            body = body[key]
    return body if isinstance(body, str) else json.dumps(body)


def _answer(start: float, events: list[tuple[float, str]], api: str) -> Answer:
    arrivals: list[float] = []
    usage: dict[str, Any] = {}
    finish = ""
    for number, (when, data) in enumerate(events, 1):
        event = _event(number, data)
        if isinstance(event.get("usage"), dict):
            usage = event["usage"]
        choices = event.get("choices") or []
        if choices and isinstance(choices[0], dict):
            finish = choices[0].get("finish_reason") or finish
            if _is_token(choices[0], api):
                arrivals.append(when)
    prompt, output = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not isinstance(prompt, int) or not isinstance(output, int):
        if not finish and not usage:
            raise EndpointError("server", Sentence("error.ended_early", count=f"{len(arrivals):,}"))
        raise EndpointError(
            "usage",
            Sentence("error.stream_no_usage"),
            Sentence("error.usage_alone"),
            Sentence("error.ask_for_usage"),
        )
    if not output:
        raise EndpointError(
            "server",
            Sentence("error.no_answer_tokens"),
            "",
            Sentence("error.no_ignore_eos"),
        )
    if not arrivals:
        # One token whose bytes are no whole character: the server sends its end and no text.
        arrivals = [events[-1][0]]
    details = usage.get("prompt_tokens_details") or {}
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    return Answer(Stream(start, np.array(arrivals), float(prompt), float(output)), float(cached or 0))


def _event(number: int, data: str) -> dict[str, Any]:
    try:
        event = json.loads(data)
    except ValueError:
        raise EndpointError(
            "server", Sentence("error.event_no_json", number=f"{number:,}", given=repr(data[:60]))
        ) from None
    if not isinstance(event, dict):
        raise EndpointError("server", Sentence("error.event_no_object", number=f"{number:,}", given=repr(data[:60])))
    if "error" in event and not event.get("choices"):
        raise EndpointError("server", Sentence("error.failed_in_stream", said=_message(data)[:_LONGEST_MESSAGE]))
    return event


def _is_token(choice: dict[str, Any], api: str) -> bool:
    """Whether an event carries a token: text, or a token whose bytes are no whole character yet."""
    if api == "completions":
        return bool(choice.get("text")) or choice.get("finish_reason") is None
    delta = choice.get("delta") or {}
    if any(delta.get(name) for name in ("content", "reasoning_content", "reasoning", "tool_calls")):
        return True
    return "role" not in delta and choice.get("finish_reason") is None
