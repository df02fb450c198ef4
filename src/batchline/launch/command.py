"""A command with its reasons: what it runs, the file that it reads, what it cannot do."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from batchline.engine import disaggregates, launch_table
from batchline.errors import InputError, UnknownNameError
from batchline.launch.flags import Flag, flags_of, values_of
from batchline.launch.kubernetes import manifest_of
from batchline.launch.shell import script_of
from batchline.strings import Sentence, group, told

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from batchline.launch.settings import Settings

__all__ = ["Launch", "engines", "launch"]


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A command with its reasons, and the files it needs.

    Parameters
    ----------
    engine, version, source, date : str
        The engine, the version that the flags are of, where they were read and when.
    program : tuple of str
        What is run, before the flags.
    flags : tuple of Flag
        Flags in order.
    keys : tuple of Flag
        Keys of the configuration file, if the engine has one.
    file : str
        Name of that file; empty if there is none.
    secrets : mapping of str to str
        Environment variables that hold secrets, and what each is for.
    notes : tuple of str
        What the command cannot do or needs to be told.
    settings : Settings
        What it was made of.
    image : str
        Container image, if the engine publishes one.
    port : int
        Port the server listens on.
    language : str
        Of the comments: "en" or "ko".
    """

    engine: str
    version: str
    source: str
    date: str
    program: tuple[str, ...]
    flags: tuple[Flag, ...]
    keys: tuple[Flag, ...]
    file: str
    secrets: Mapping[str, str] = field(hash=False)
    notes: tuple[str, ...]
    settings: Settings
    image: str
    port: int
    language: str = "en"

    def comment(self, words: str) -> str:
        """Say a reason, a note or what a secret is for.

        Parameters
        ----------
        words : str
            One of this command's.

        Returns
        -------
        str
            The same in its language.
        """
        return told(words, self.language)

    @property
    def head(self) -> str:
        """Which engine the flags are of, and where they were read."""
        facts = {name: getattr(self, name) for name in ("engine", "version", "source", "date")}
        return self.comment(Sentence("launch.flags_of", **facts))

    @property
    def argv(self) -> list[str]:
        """Program, flags and values as the system runs them."""
        words = list(self.program)
        for flag in self.flags:
            words.append(flag.name)
            if flag.value is not None:
                words.append(str(flag.value))
        return words

    @property
    def key_argument(self) -> str:
        """Shell words that pass the clients' key on, for an engine that does not read it from the environment."""
        return '${SGLANG_API_KEY:+--api-key "$SGLANG_API_KEY"}' if self.engine == "sglang" else ""

    @property
    def config(self) -> str:
        """Configuration file with its reasons, as YAML; empty if the engine takes flags only."""
        lines: list[str] = []
        opened = ""
        for key in self.keys:
            outer, _, inner = key.name.rpartition(".")
            if outer and outer != opened:
                lines.append(f"{outer}:")
            opened = outer
            indent = "  " if outer else ""
            lines.append(f"{indent}{inner}: {json.dumps(key.value)}  # {self.comment(key.reason)}")
        return "\n".join(lines) + "\n" if lines else ""

    @property
    def script(self) -> str:
        """Shell script with a comment for every flag."""
        return script_of(self)

    @property
    def kubernetes(self) -> str:
        """Kubernetes Deployment and Service, as YAML.

        Raises
        ------
        InputError
            The engine has no manifest here, or a replica needs accelerators that no device plugin is known for.
        """
        return manifest_of(self)

    def to_dict(self) -> dict[str, Any]:
        """Give everything, with the names of the JSON output.

        Returns
        -------
        dict
            `argv`, `script`, `config`, `flags` with their reasons and sources.
        """
        return {
            "engine": self.engine,
            "version": self.version,
            "source": self.source,
            "date": self.date,
            "argv": self.argv,
            "flags": [vars(flag) for flag in (*self.flags, *self.keys)],
            "config": self.config,
            "script": self.script,
            "secrets": dict(self.secrets),
            "notes": list(self.notes),
        }


def engines() -> list[str]:
    """Engines that `launch` can start.

    Returns
    -------
    list of str
        Names.

    Examples
    --------
    >>> engines()
    ['vllm', 'sglang', 'trtllm', 'llama.cpp']
    """
    return list(launch_table())


def launch(engine: str, settings: Settings) -> Launch:
    """Write the command that starts an engine with these settings.

    Parameters
    ----------
    engine : str
        One of `engines`.
    settings : Settings
        What to start it with.

    Returns
    -------
    Launch
        Command, configuration file, reasons, notes.

    Raises
    ------
    UnknownNameError
        No such engine.
    InputError
        A number format of the KV cache, a layout or a role that the engine does not have.

    Examples
    --------
    >>> from batchline.launch import Settings
    >>> made = launch("vllm", Settings(model="org/model", tp=4, max_num_seqs=142, isl=4096, osl=1024))
    >>> made.argv[:7]
    ['vllm', 'serve', 'org/model', '--host', '0.0.0.0', '--tensor-parallel-size', '4']
    """
    table = launch_table()
    if engine not in table:
        raise UnknownNameError("engine", engine, table, Sentence("error.starts_these"))
    entry = table[engine]
    settings.check()
    _check_engine(engine, settings)
    values = values_of(engine, entry, settings)
    return Launch(
        engine=engine,
        version=entry["version"],
        source=entry["source"],
        date=entry["date"],
        program=tuple(word.format(model=settings.model) for word in entry["program"]),
        flags=flags_of(entry["flags"], values),
        keys=flags_of(entry.get("keys", []), values),
        file=entry["file"],
        secrets={name: Sentence(f"launch.secret_{why}") for name, why in entry["secrets"].items()},
        notes=tuple(_notes(engine, entry, settings)),
        settings=settings,
        image=entry.get("image", ""),
        port=settings.port or entry["port"],
    )


def _check_engine(engine: str, settings: Settings) -> None:
    if settings.role and not disaggregates(engine):
        raise InputError(Sentence("error.prompts_together", engine=engine), "", Sentence("error.plan_together"))
    if engine == "llama.cpp" and (settings.tp > 1 or settings.dp > 1 or settings.ep > 1):
        raise InputError(Sentence("error.whole_layers"), Sentence("error.pp_only"), Sentence("error.other_layout"))


def _notes(engine: str, entry: Mapping[str, Any], settings: Settings) -> Iterator[Sentence]:
    of_model = {"model": settings.model, "weights": settings.weights}
    if engine == "llama.cpp":
        yield Sentence("launch.note_gguf", **of_model)
    elif settings.rounded and settings.weights not in entry["online"]:
        yield Sentence("launch.note_rounds", **of_model, checkpoint=settings.checkpoint_weights, engine=engine)
    if settings.rounded:
        yield Sentence("launch.note_quality", weights=settings.weights)
    replicas = f"{settings.replicas}"
    if settings.role:
        named = f"router_{entry['router']}" in group("launch", "en")
        router = Sentence(f"launch.router_{entry['router']}") if named else entry["router"]
        yield Sentence("launch.note_role", role=settings.task, router=router)
        yield Sentence("launch.note_replicas_of", replicas=replicas)
        if engine == "vllm":
            yield Sentence("launch.note_nixl")
    elif settings.replicas > 1:
        yield Sentence("launch.note_replicas", replicas=replicas)
    if settings.dp > 1 and settings.max_num_seqs and engine in ("vllm", "trtllm"):
        yield Sentence("launch.note_ranks", dp=f"{settings.dp}")
