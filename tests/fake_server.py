"""An OpenAI-compatible server on loopback whose engine and faults are known: asyncio, in a thread of its own.

The engine prefills one prompt at a time and otherwise decodes all running requests together, in steps of
`step_s + per_sequence_s x batch`. A fault turns one thing wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
from dataclasses import dataclass, field
from typing import Self

FAULTS = (
    "none", "404 model", "404 path", "redirect", "no stream", "no usage", "no stream_options", "429", "429 once", "500",
    "500 once", "503", "malformed", "not an object", "error in stream", "drop", "drop once", "never ends", "silent",
    "hangs", "slow", "eos", "empty", "chunks", "no ignore_eos", "max_completion_tokens",
)  # fmt: skip


@dataclass
class FakeServer:
    """Settings and what was seen; `with FakeServer(...) as server: server.url`."""

    fault: str = "none"
    model: str = "a-model"
    models: tuple[str, ...] = ()
    chat_only: bool = False
    completions_only: bool = False
    key: str = ""
    step_s: float = 0.002
    per_sequence_s: float = 0.0002
    prefill_s: float = 0.0
    slots: int = 64
    max_context: int = 0
    tokens_per_letter: int = 1
    overhead: int = 5
    cached: int = 0
    stop_after: int = 0
    says_context: bool = True
    prompts: list[str] = field(default_factory=list)
    bodies: list[dict] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        assert self.fault in FAULTS, self.fault
        self.faulted = 0

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        started = threading.Event()

        async def main() -> None:
            self._waiting: list[_Request] = []
            self._running: list[_Request] = []
            self._handlers: set[asyncio.Task] = set()
            server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            self._engine = asyncio.ensure_future(self._run_engine())
            self._stop = asyncio.Event()
            started.set()
            await self._stop.wait()
            server.close()
            self._engine.cancel()
            for task in list(self._handlers):
                task.cancel()
            await asyncio.gather(self._engine, *self._handlers, return_exceptions=True)

        def run() -> None:
            self._loop.run_until_complete(main())
            self._loop.close()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        assert started.wait(5)
        return self

    def __exit__(self, *error: object) -> None:
        self.die()

    def die(self) -> None:
        """Stop answering and close every connection."""
        if not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(5)
        assert not self._thread.is_alive()

    # --- engine -------------------------------------------------------------------------------------------------------

    async def _run_engine(self) -> None:
        clock = asyncio.get_running_loop()
        while True:
            if self._waiting and len(self._running) < self.slots:
                request = self._waiting.pop(0)
                await asyncio.sleep(self.prefill_s)
                request.give()
                self._running.append(request)
            elif self._running:
                began = clock.time()
                took = self.step_s + self.per_sequence_s * len(self._running)
                await asyncio.sleep(max(0.0, took - (clock.time() - began)))
                for request in self._running:
                    request.give()
            else:
                await asyncio.sleep(0.0005)
            self._running = [request for request in self._running if request.left > 0]

    def tokens(self, prompt: str) -> int:
        letters, digits = len(re.findall(r"[a-z]", prompt)), len(re.findall(r"\d", prompt))
        return self.overhead + self.tokens_per_letter * letters + digits

    # --- HTTP ---------------------------------------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._handlers.add(task)
        try:
            while await self._request(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._handlers.discard(task)
            writer.close()
            with contextlib.suppress(Exception):
                await writer.wait_closed()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split(" ")[1]
        length = int((re.search(r"content-length: (\d+)", head, re.IGNORECASE) or [0, 0])[1])
        body = json.loads(await reader.readexactly(length)) if length else {}
        self.headers.append(head)
        self.paths.append(path)
        if self.key and f"authorization: bearer {self.key}".casefold() not in head.casefold():
            return await self._plain(
                writer, 401, {"error": {"message": f"Incorrect API key provided: {self._given(head)}"}}
            )
        if path.endswith("/models"):
            return await self._models(writer)
        self.bodies.append(body)
        return await self._complete(writer, path, body)

    @staticmethod
    def _given(head: str) -> str:
        found = re.search(r"authorization: Bearer (\S+)", head, re.IGNORECASE)
        return found[1] if found else "none"

    async def _models(self, writer: asyncio.StreamWriter) -> bool:
        if self.fault == "404 path":
            return await self._plain(writer, 404, "<html>not here</html>")
        cards = [{"id": name, "object": "model", "owned_by": "vllm"} for name in (self.models or (self.model,))]
        if self.max_context and self.says_context:
            cards[0]["max_model_len"] = self.max_context
        return await self._plain(writer, 200, {"object": "list", "data": cards})

    async def _plain(self, writer: asyncio.StreamWriter, status: int, body: object, extra: str = "") -> bool:
        text = body if isinstance(body, str) else json.dumps(body)
        kind = "text/html" if isinstance(body, str) else "application/json"
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(text.encode())}\r\n{extra}\r\n"
        writer.write(head.encode() + text.encode())
        await writer.drain()
        return True

    async def _complete(self, writer: asyncio.StreamWriter, path: str, body: dict) -> bool:
        chat = path.endswith("/chat/completions")
        if (self.chat_only and not chat) or (self.completions_only and chat) or self.fault == "404 path":
            return await self._plain(writer, 404, {"error": {"message": "Not Found"}})
        refused = self._refusal(body)
        if refused:
            return await self._plain(writer, *refused)
        prompt = body["messages"][0]["content"] if chat else body["prompt"]
        self.prompts.append(prompt)
        length, asked = self.tokens(prompt), body.get("max_tokens") or body.get("max_completion_tokens")
        if self.max_context and length + asked > self.max_context:
            said = f"This model's maximum context length is {self.max_context} tokens, {length + asked} were requested."
            return await self._plain(writer, 400, {"error": {"message": said}})
        if self.fault == "no stream":
            return await self._plain(
                writer, 200, {"choices": [{"text": "hello"}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
            )
        return await self._stream(writer, length, self.stop_after or asked, chat)

    def _refusal(self, body: dict) -> tuple[int, object, str] | None:
        once = self.fault.endswith("once")
        if once and self.faulted >= 4:
            return None
        if body["model"] != self.model or self.fault == "404 model":
            return 404, {"error": {"message": f"The model `{body['model']}` does not exist."}}, ""
        if self.fault.startswith("429"):
            self.faulted += 1
            return 429, {"error": {"message": "Rate limit reached"}}, "Retry-After: 0\r\n"
        if self.fault.startswith("500"):
            self.faulted += 1
            return 500, {"error": {"message": "CUDA out of memory"}}, ""
        found = {
            "redirect": (307, "", "Location: http://elsewhere.example/v1/completions\r\n"),
            "503": (503, {"error": {"message": "Loading model"}}, ""),
        }.get(self.fault)
        if self.fault == "no ignore_eos" and "ignore_eos" in body:
            found = 400, {"error": {"message": "Unrecognized request argument supplied: ignore_eos"}}, ""
        if self.fault == "no stream_options" and "stream_options" in body:
            found = 400, {"error": {"message": "Unknown field stream_options"}}, ""
        if self.fault == "max_completion_tokens" and "max_tokens" in body:
            found = (
                400,
                {"error": {"message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."}},
                "",
            )
        return found

    async def _stream(self, writer: asyncio.StreamWriter, prompt: int, output: int, chat: bool) -> bool:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        if self.fault == "hangs":
            await asyncio.sleep(3600)
        if self.fault == "slow":
            await asyncio.sleep(0.4)
        request = _Request(output if self.fault != "eos" else min(output, 3))
        self._waiting.append(request)
        if chat:
            await self._event(
                writer, {"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
            )
        await self._tokens(writer, request, output, chat)
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": request.given,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }
        if self.fault != "no usage":
            await self._event(writer, {"choices": [], "usage": usage})
        await self._event(writer, "[DONE]")
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _tokens(self, writer: asyncio.StreamWriter, request: _Request, output: int, chat: bool) -> None:
        sent = 0
        each = 4 if self.fault == "chunks" else 1
        while request.left or not request.events.empty():
            await request.events.get()
            sent += 1
            if self.fault == "malformed" and sent == 5:
                await self._event(writer, '{"choices": [{"te')
            if self.fault == "not an object" and sent == 5:
                await self._event(writer, "[1, 2]")
            if self.fault == "error in stream" and sent == 5:
                await self._event(writer, {"error": {"message": "engine died"}})
            if self.fault in ("drop", "drop once") and sent == 5 and self.faulted < 4 and output > 8:
                self.faulted += self.fault == "drop once"
                writer.transport.abort()
                raise ConnectionResetError
            if self.fault == "silent" and sent == 5:
                await asyncio.sleep(3600)
            last = request.left == 0 and request.events.empty()
            if sent % each == 0 or last:
                await self._event(writer, _token(chat, "" if self.fault == "empty" else "x ", last))
        while self.fault == "never ends":
            await asyncio.sleep(0.001)
            await self._event(writer, _token(chat, "x ", last=False))

    async def _event(self, writer: asyncio.StreamWriter, data: object) -> None:
        text = data if isinstance(data, str) else json.dumps(data)
        line = f": keep-alive\n\ndata: {text}\n\n".encode()
        writer.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        await writer.drain()


def _token(chat: bool, text: str, last: bool) -> dict:
    finish = "length" if last else None
    content = {"delta": {"content": text}} if chat else {"text": text}
    return {"choices": [{**content, "finish_reason": finish}]}


@dataclass
class _Request:
    left: int
    given: int = 0
    events: asyncio.Queue = field(default_factory=asyncio.Queue)

    def give(self) -> None:
        self.left -= 1
        self.given += 1
        self.events.put_nowait(self.given)
