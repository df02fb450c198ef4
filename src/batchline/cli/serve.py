"""`batchline serve`: the page and the JSON API on this machine."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING, Any

import click

from batchline.cli import _options, _output
from batchline.cli._language import say
from batchline.cli._spoken import Spoken
from batchline.errors import InputError
from batchline.strings import Sentence, text

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@click.command("serve", cls=Spoken)
@click.option("--host", default="127.0.0.1", show_default=True, help=text("help.serve_host"))
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help=text("help.serve_port"))
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help=text("help.serve_workers"))
@click.option("--name", "names", multiple=True, metavar="HOST", help=text("help.names"))
@_options.profile_option
@click.option("--log/--no-log", "access_log", default=True, help=text("help.access_log"))
@click.option("--open", "opens", is_flag=True, help=text("help.opens"))
def command(
    host: str,
    port: int,
    workers: int,
    names: tuple[str, ...],
    profile: str | None,
    access_log: bool,
    opens: bool,
) -> None:
    """Serve the page: drag a slider and see the six plots, the optimum and the price of a token.

    \b
    batchline serve
    batchline serve --port 9000 --open --profile profile.toml
    batchline serve --host 0.0.0.0 --name plan.example.com --workers 2
    """
    _options.priors_of(profile)  # a profile that cannot be read is told now, not by the first answer
    port = port or _free_port(host)
    _check_free(host, port)
    open_to_others = host not in _LOOPBACK
    hosts = [*names, *(() if open_to_others and not names else (*_LOOPBACK, "[::1]", host))]
    os.environ["BATCHLINE_HOSTS"] = ",".join(hosts)
    os.environ["BATCHLINE_ACCESS_LOG"] = "1" if access_log else "0"
    os.environ["BATCHLINE_PROFILE"] = profile or ""
    if open_to_others:
        _output.warn(say("serve.open_to_all", host=host))
    shown = "localhost" if host in ("127.0.0.1", "0.0.0.0") else f"[{host}]" if ":" in host else host  # noqa: S104
    address = f"http://{shown}:{port}"

    def ready() -> None:
        click.echo(say("serve.ready", address=address), err=True)
        if opens:
            import webbrowser

            webbrowser.open(address)

    _run(host, port, workers, ready)


def _run(host: str, port: int, workers: int, ready: Callable[[], None]) -> None:
    import uvicorn

    class Server(uvicorn.Server):
        """A server that says when it can be asked."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets=sockets)
            if self.started:
                ready()

    config: dict[str, Any] = {
        "factory": True,
        "log_level": "warning",
        "access_log": False,
        "server_header": False,
        "timeout_graceful_shutdown": 10,
        "timeout_keep_alive": 30,
        "limit_concurrency": 512,
        "h11_max_incomplete_event_size": 64 * 2**10,
    }
    if workers == 1:
        with contextlib.suppress(KeyboardInterrupt):
            Server(uvicorn.Config("batchline.web.app:create", host=host, port=port, **config)).run()
        return
    from uvicorn.supervisors import Multiprocess

    with _listening(host, port) as listener:
        ready()
        Multiprocess(uvicorn.Config("batchline.web.app:create", workers=workers, **config), sockets=[listener]).run()


class Listener(socket.socket):
    """Socket that workers share: one connection each time that some wait, the others are for workers that are idle.

    An event loop takes all that wait, so one worker got them all and the others had nothing to do.
    """

    took = False

    def accept(self) -> tuple[socket.socket, Any]:
        """Take a connection; after one, say once that none waits."""
        if self.took:
            self.took = False
            raise BlockingIOError
        taken = super().accept()
        self.took = True
        return taken

    def __reduce__(self) -> tuple[Any, ...]:
        """Go with a worker when it is started."""
        from multiprocessing.reduction import DupFd

        return _rebuilt, (DupFd(self.fileno()), self.family, self.type, self.proto)


def _rebuilt(handle: Any, family: int, kind: int, protocol: int) -> Listener:
    return Listener(family, kind, protocol, fileno=handle.detach())


def _listening(host: str, port: int) -> Listener:
    """Socket that the workers share, which hand it on: without TCP_NODELAY each answer would wait 40 ms."""
    listener = Listener(_family(host), socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.bind((host, port))
    listener.listen()  # whoever asks before the first worker is ready waits
    return listener


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _free_port(host: str) -> int:
    with socket.socket(_family(host)) as trial:
        trial.bind((host, 0))
        return int(trial.getsockname()[1])


def _check_free(host: str, port: int) -> None:
    with socket.socket(_family(host)) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
        except OSError as error:
            raise InputError(
                Sentence("error.address_taken", address=f"{host}:{port}", reason=str(error.strerror)),
                "",
                Sentence("error.take_another_port"),
            ) from None
