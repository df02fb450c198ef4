"""The command that starts a plan: vLLM, SGLang, TensorRT-LLM, llama.cpp, and a Kubernetes manifest for vLLM.

Every flag carries its reason as a comment, and comes from `data/launch_flags.toml`, which says for which version of the
engine it was read and where. Secrets are named, never written: the script reads them from the environment, the manifest
from a Kubernetes secret.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
import shlex
import tomllib
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from batchline.errors import InputError, UnknownNameError
from batchline.strings import Sentence, group, text, told

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from batchline.planner import Candidate, Question

__all__ = ["Flag", "Launch", "Settings", "engines", "launch", "manifest", "script", "settings_of", "starts"]

_UBATCH = 512
"""llama.cpp's own size of a matrix product [token]; see its tools/server/README.md."""
_KV_TRANSFER: Final = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
_ROLES: Final = ("", "prefill", "decode")
_GPU_RESOURCE: Final = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu"}
"""What the device plugins of Kubernetes call an accelerator."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a server is started with, by vLLM's names where it has one.

    Parameters
    ----------
    model : str
        Hugging Face id or path of the checkpoint (a GGUF file for llama.cpp).
    tp, pp, dp, ep : int
        Tensor, pipeline, attention-data and expert parallel degrees [-].
    weights : str
        Number format that the weights are served in.
    checkpoint_weights : str
        Number format of the checkpoint; if it differs, the engine has to round while loading.
    kv : str
        Number format of the KV cache.
    max_num_seqs : int or None
        Sequences decoded together in the whole deployment [sequence]; None leaves the engine's default.
    max_num_batched_tokens : int or None
        Token budget of a step [token]; None leaves the engine's default.
    isl, osl : int
        Longest input and output that were planned [token].
    max_model_len : int or None
        Longest request [token]; None takes isl + osl.
    gpu_memory_utilization : float
        Share of a device's memory for weights, activations and KV cache [-].
    prefix_hit_rate : float
        Share of prompt tokens expected in the prefix cache [-].
    why_max_num_seqs : str
        Why not more sequences: what the plan found.
    memory_bytes, weight_bytes_per_device : float or None
        Memory of a device and the weights on it; TensorRT-LLM's share of free memory is made of them [B].
    replicas : int
        Copies of the server [-].
    role : str
        "prefill" or "decode" where prompts have replicas of their own, else "".
    vendor : str
        Vendor of the accelerator.
    served_name : str or None
        What clients call the model; None leaves the engine's default.
    host : str
        Interface to listen on.
    port : int or None
        Port; None takes the engine's default.
    trust_remote_code : bool
        Whether the model's own code may run.
    """

    model: str
    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    weights: str = "bf16"
    checkpoint_weights: str = "bf16"
    kv: str = "bf16"
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    isl: int = 0
    osl: int = 0
    max_model_len: int | None = None
    gpu_memory_utilization: float = 0.9
    prefix_hit_rate: float = 0.0
    why_max_num_seqs: str = Sentence("launch.most_together")
    memory_bytes: float | None = None
    weight_bytes_per_device: float | None = None
    replicas: int = 1
    role: str = ""
    vendor: str = "NVIDIA"
    served_name: str | None = None
    host: str = "0.0.0.0"  # noqa: S104  (a server for others listens for others)
    port: int | None = None
    trust_remote_code: bool = False

    @property
    def devices(self) -> int:
        """Accelerators of one replica [device]."""
        return self.tp * self.pp * self.dp


@dataclass(frozen=True)
class Flag:
    """One flag of a command line, or one key of a configuration file.

    Parameters
    ----------
    name : str
        As the engine documents it.
    value : str, int, float, bool or None
        Its value; None for a switch.
    reason : str
        Why it has that value.
    source : str
        Where the engine documents it.
    """

    name: str
    value: str | int | float | bool | None
    reason: str
    source: str


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

    def _say(self, key: str, **fields: str) -> str:
        return text(f"launch.{key}", self.language, **fields)

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
        return self._say("flags_of", engine=self.engine, version=self.version, source=self.source, date=self.date)

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
        group = ""
        for key in self.keys:
            outer, _, inner = key.name.rpartition(".")
            if outer and outer != group:
                lines.append(f"{outer}:")
            group = outer
            indent = "  " if outer else ""
            lines.append(f"{indent}{inner}: {json.dumps(key.value)}  # {self.comment(key.reason)}")
        return "\n".join(lines) + "\n" if lines else ""

    @property
    def script(self) -> str:
        """Shell script with a comment for every flag."""
        lines = ["#!/usr/bin/env bash", f"# {self.head}"]
        lines += [f"# {self.comment(note)}" for note in self.notes]
        lines += [
            f"# {self._say('reads_secret', name=name, why=self.comment(why))}" for name, why in self.secrets.items()
        ]
        lines.append("set -euo pipefail")
        if self.file:
            lines += [f"cat > {self.file} <<'YAML'", self.config.rstrip("\n"), "YAML"]
        width = max((len(_words(flag)) for flag in self.flags), default=0)
        lines.append("flags=(")
        lines += [f"  {_words(flag):<{width}}  # {self.comment(flag.reason)}" for flag in self.flags]
        if self.key_argument:
            lines.append(f"  {self.key_argument:<{width}}  # {self._say('only_if_set')}")
        lines += [")", f'exec {shlex.join(self.program)} "${{flags[@]}}"']
        return "\n".join(lines) + "\n"

    @property
    def kubernetes(self) -> str:
        """Kubernetes Deployment and Service, as YAML.

        Raises
        ------
        InputError
            The engine has no manifest here, or a replica needs accelerators that no device plugin is known for.
        """
        if not self.image:
            raise InputError(Sentence("error.no_manifest", engine=self.engine), Sentence("error.manifest_for"))
        resource = _GPU_RESOURCE.get(self.settings.vendor)
        if resource is None:
            raise InputError(
                Sentence("error.no_resource", vendor=self.settings.vendor),
                Sentence("error.known", names=", ".join(_GPU_RESOURCE)),
                Sentence("error.take_script"),
            )
        return _manifest(self, resource)

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


def settings_of(candidate: Candidate, question: Question, role: str = "") -> Settings:
    """Settings of a deployment that a plan found.

    Parameters
    ----------
    candidate : planner.Candidate
        The deployment.
    question : planner.Question
        What it was planned for.
    role : str
        "prefill" or "decode" of a candidate whose prompts have replicas of their own, else "".

    Returns
    -------
    Settings
        For `launch`.

    Raises
    ------
    InputError
        A role that the candidate does not have, or none where it has two.

    Examples
    --------
    >>> from batchline.planner import plan
    >>> answer = plan("llama-3.1-8b", isl=1024, osl=256, rate=5, tpot="30ms", accelerators=("l40s",))
    >>> made = settings_of(answer.best, answer.question)
    >>> made.model, made.max_num_seqs == answer.best.max_num_seqs
    ('meta-llama/Meta-Llama-3.1-8B', True)
    """
    from batchline.accelerator import Accelerator  # noqa: PLC0415  (commands of one's own need neither)
    from batchline.architecture import Architecture, catalogue  # noqa: PLC0415
    from batchline.engine import Request, account  # noqa: PLC0415

    if bool(role) != (candidate.prefill is not None) or role not in _ROLES:
        problem = "error.replicas_apart" if candidate.prefill else "error.replicas_do_both"
        raise InputError(Sentence(problem, title=candidate.title), "", Sentence("error.role_for_apart"))
    arch, device = Architecture.load(question.model), Accelerator.load(candidate.accelerator)
    shape = candidate.prefill if candidate.prefill is not None and role == "prefill" else candidate
    # A prefill replica holds few requests: those whose prompts are computed or wait to be fetched.
    slots = candidate.max_num_seqs if role != "prefill" else None
    ids = {row["name"]: row["hf_id"] for row in catalogue()}
    per_rank = None if slots is None else max(1, slots // shape.dp)
    made = account(
        arch,
        device,
        candidate.engine,
        weights=None if candidate.weights == arch.weight_format else candidate.weights,
        kv=candidate.kv,
        tp=shape.tp,
        pp=shape.pp,
        dp=shape.dp,
        ep=shape.ep,
        request=Request(
            max_model_len=question.longest,
            max_num_seqs=per_rank,
            max_num_batched_tokens=shape.max_num_batched_tokens,
        ),
    )
    promise = question.tpot or question.itl or question.e2e
    reasons = {
        "step_limit": Sentence("launch.most_step_limit", promise=str(promise)),
        **{name: Sentence(f"launch.most_{name}") for name in ("kv", "max_num_seqs", "prefill")},
    }
    return Settings(
        model=ids.get(arch.name) or str(question.model),
        tp=shape.tp,
        pp=shape.pp,
        dp=shape.dp,
        ep=shape.ep,
        weights=candidate.weights,
        checkpoint_weights=arch.weight_format,
        kv=candidate.kv,
        max_num_seqs=slots,
        max_num_batched_tokens=shape.max_num_batched_tokens,
        isl=math.ceil(question.isl),
        osl=math.ceil(question.osl),
        max_model_len=question.longest,
        gpu_memory_utilization=round(made.gpu_memory_utilization, 3),
        prefix_hit_rate=question.prefix_hit_rate,
        why_max_num_seqs=reasons.get(candidate.saturated_by, Settings.why_max_num_seqs),
        memory_bytes=made.memory_bytes,
        weight_bytes_per_device=made.weight_bytes,
        replicas=shape.replicas,
        role=role,
        vendor=device.vendor,
    )


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
    return list(_table())


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
    >>> made = launch("vllm", Settings(model="org/model", tp=4, max_num_seqs=142, isl=4096, osl=1024))
    >>> made.argv[:7]
    ['vllm', 'serve', 'org/model', '--host', '0.0.0.0', '--tensor-parallel-size', '4']
    """
    table = _table()
    if engine not in table:
        raise UnknownNameError("engine", engine, table, Sentence("error.starts_these"))
    entry = table[engine]
    _check_layout(engine, settings)
    values = _values(engine, entry, settings)
    return Launch(
        engine=engine,
        version=entry["version"],
        source=entry["source"],
        date=entry["date"],
        program=tuple(word.format(model=settings.model) for word in entry["program"]),
        flags=_flags(entry["flags"], values),
        keys=_flags(entry.get("keys", []), values),
        file=entry["file"],
        secrets={name: Sentence(f"launch.secret_{why}") for name, why in entry["secrets"].items()},
        notes=tuple(_notes(engine, entry, settings)),
        settings=settings,
        image=entry.get("image", ""),
        port=settings.port or entry["port"],
    )


def starts(candidate: Candidate, question: Question, *, language: str = "en", **changes: Any) -> tuple[Launch, ...]:
    """Write the commands of a deployment that a plan found: one, or one for prompts and one for decoding.

    Parameters
    ----------
    candidate : planner.Candidate
        The deployment.
    question : planner.Question
        What it was planned for.
    language : str
        Of the comments: "en" or "ko".
    **changes
        Settings to replace, like `model` or `port`.

    Returns
    -------
    tuple of Launch
        The command; where prompts have replicas of their own, theirs and then that of decoding.
    """
    roles = ("",) if candidate.prefill is None else ("prefill", "decode")
    made = (dataclasses.replace(settings_of(candidate, question, role), **changes) for role in roles)
    return tuple(dataclasses.replace(launch(candidate.engine, settings), language=language) for settings in made)


def script(made: Sequence[Launch]) -> str:
    """Write one script for all commands of a deployment: with two, `start.sh prefill` and `start.sh decode`.

    Parameters
    ----------
    made : sequence of Launch
        What `starts` gave.

    Returns
    -------
    str
        Shell script.

    Examples
    --------
    >>> made = [launch("sglang", Settings(model="org/model", role=role)) for role in ("prefill", "decode")]
    >>> script(made).splitlines()[1]
    '# start.sh prefill: computes prompts and sends their KV cache on'
    """
    if len(made) == 1:
        return made[0].script
    lines = [
        "#!/usr/bin/env bash",
        *(f"# start.sh {one.settings.role}: {one.comment(_role(one.settings))}" for one in made),
    ]
    lines.append('case "${1:-}" in')
    for one in made:
        lines += [f"{one.settings.role})", *one.script.splitlines()[1:], ";;"]
    return "\n".join([*lines, '*) echo "usage: $0 prefill | decode" >&2; exit 2 ;;', "esac"]) + "\n"


def manifest(made: Sequence[Launch]) -> str:
    """Write the Kubernetes manifests of all commands of a deployment.

    Parameters
    ----------
    made : sequence of Launch
        What `starts` gave.

    Returns
    -------
    str
        YAML documents.

    Raises
    ------
    InputError
        As of `Launch.kubernetes`.
    """
    return "---\n".join(one.kubernetes for one in made)


@functools.cache
def _table() -> dict[str, Any]:
    return tomllib.loads(resources.files("batchline").joinpath("data/launch_flags.toml").read_text(encoding="utf-8"))


def _check_layout(engine: str, settings: Settings) -> None:
    for name in ("tp", "pp", "dp", "ep", "replicas"):
        if getattr(settings, name) < 1:
            raise InputError(Sentence("error.launch_from_1", name=name, given=f"{getattr(settings, name)}"))
    for name in ("model", "served_name", "host", "weights", "why_max_num_seqs"):
        if not str(getattr(settings, name) or "").isprintable():  # a line break would end a comment
            raise InputError(Sentence("error.not_printable", name=name), "", Sentence("error.write_one_line"))
    if settings.role not in _ROLES:
        raise UnknownNameError("role", settings.role, [role for role in _ROLES if role])
    if settings.role and "disaggregation" not in _table()[engine]:
        raise InputError(Sentence("error.prompts_together", engine=engine), "", Sentence("error.plan_together"))
    if engine == "llama.cpp" and (settings.tp > 1 or settings.dp > 1 or settings.ep > 1):
        raise InputError(
            Sentence("error.whole_layers"),
            Sentence("error.pp_only"),
            Sentence("error.other_layout"),
        )
    if not 0 < settings.gpu_memory_utilization <= 1:
        raise InputError(Sentence("error.memory_share", given=f"{settings.gpu_memory_utilization}"))


def _values(engine: str, entry: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Settings and what follows from them, under the names that launch_flags.toml uses."""
    kv_names = entry["kv"]
    if settings.kv not in kv_names:
        raise UnknownNameError(
            Sentence("error.kind_kv_format_of", engine=engine), settings.kv, kv_names, Sentence("error.other_kv")
        )
    longest = settings.max_model_len or (settings.isl + settings.osl) or None
    per_rank = None if settings.max_num_seqs is None else max(1, settings.max_num_seqs // settings.dp)
    rounded = settings.weights != settings.checkpoint_weights
    return dict(vars(settings)) | {
        "always": True,
        "max_model_len": longest,
        "max_num_seqs_per_rank": per_rank,
        "max_num_seqs_reason": settings.why_max_num_seqs,
        "expert_parallel": settings.ep > 1 or None,
        "tp_times_dp": settings.tp * settings.dp,
        "attention_dp": settings.dp > 1 or None,
        "online_quantization": entry["online"].get(settings.weights) if rounded else None,
        "kv_name": kv_names[settings.kv],
        "prefix_caching": settings.prefix_hit_rate > 0,
        "prefix_share": f"{settings.prefix_hit_rate:.0%}",
        "no_prefix_caching": settings.prefix_hit_rate == 0 or None,
        "chunked": settings.max_num_batched_tokens is not None or None,
        "free_memory_fraction": _free_fraction(settings),
        "file": entry["file"],
        "all_layers": "all",
        "split_mode": "layer" if settings.pp > 1 else None,
        "context_of_all_slots": None if longest is None or per_rank is None else per_rank * longest,
        "ubatch": None if settings.max_num_batched_tokens is None else min(_UBATCH, settings.max_num_batched_tokens),
        "flash_attention": "on",
        "role_reason": _role(settings),
        "kv_transfer": _KV_TRANSFER if settings.role else None,
        "disaggregation_mode": settings.role or None,
        "transceiver": "DEFAULT" if settings.role else None,
        "transceiver_tokens": longest if settings.role else None,
        "prefill_only": settings.role == "prefill" or None,
    }


def _free_fraction(settings: Settings) -> float | None:
    """Share of what is free after loading that leaves the KV cache the plan counted on."""
    memory, weights = settings.memory_bytes, settings.weight_bytes_per_device
    if memory is None or weights is None:
        return None
    kv = settings.gpu_memory_utilization * memory - weights
    if kv <= 0:
        raise InputError(Sentence("error.no_kv_memory"), "", Sentence("error.smaller_or_more"))
    return round(kv / (memory - weights), 3)


def _flags(rows: list[dict[str, Any]], values: Mapping[str, Any]) -> tuple[Flag, ...]:
    made = []
    for row in rows:
        value = values[row["setting"]] if row["setting"] else None
        if row["setting"] and (value is None or value == row.get("omit")):
            continue
        if "when" in row and not values[row["when"]]:
            continue
        made.append(Flag(row["name"], value, _reason(row["reason"], values), row["source"]))
    return tuple(made)


def _reason(name: str, values: Mapping[str, Any]) -> Sentence:
    """Why a flag has its value, with the settings that the sentence names."""
    named = re.findall(r"\{(\w+)\}", group("launch", "en")[f"why_{name}"])
    shown = {one: values[one] for one in named}
    return Sentence(f"launch.why_{name}", **{one: v if isinstance(v, Sentence) else f"{v}" for one, v in shown.items()})


def _notes(engine: str, entry: Mapping[str, Any], settings: Settings) -> list[str]:
    notes = []
    rounded = settings.weights != settings.checkpoint_weights
    of_model = {"model": settings.model, "weights": settings.weights}
    if engine == "llama.cpp":
        notes.append(Sentence("launch.note_gguf", **of_model))
    elif rounded and settings.weights not in entry["online"]:
        notes.append(Sentence("launch.note_rounds", **of_model, checkpoint=settings.checkpoint_weights, engine=engine))
    if rounded:
        notes.append(Sentence("launch.note_quality", weights=settings.weights))
    replicas = f"{settings.replicas}"
    if settings.role:
        named = f"router_{entry['router']}" in group("launch", "en")
        router = Sentence(f"launch.router_{entry['router']}") if named else entry["router"]
        notes.append(Sentence("launch.note_role", role=_role(settings), router=router))
        notes.append(Sentence("launch.note_replicas_of", replicas=replicas))
        if engine == "vllm":
            notes.append(Sentence("launch.note_nixl"))
    elif settings.replicas > 1:
        notes.append(Sentence("launch.note_replicas", replicas=replicas))
    if settings.dp > 1 and settings.max_num_seqs and engine in ("vllm", "trtllm"):
        notes.append(Sentence("launch.note_ranks", dp=f"{settings.dp}"))
    return list(notes)


def _role(settings: Settings) -> Sentence:
    return Sentence(f"launch.role_{settings.role or 'none'}")


def _words(flag: Flag) -> str:
    return flag.name if flag.value is None else f"{flag.name} {shlex.quote(str(flag.value))}"


def _manifest(made: Launch, resource: str) -> str:
    settings = made.settings

    def say(key: str, **fields: str) -> str:
        return text(f"launch.{key}", made.language, **fields)

    name = re.sub(r"[^a-z0-9]+", "-", (settings.served_name or settings.model).rsplit("/", 1)[-1].lower()).strip("-")[
        :53
    ] + (f"-{settings.role}" if settings.role else "")
    arguments = [f"            - {json.dumps(settings.model)}"]
    for flag in made.flags:
        word = flag.name if flag.value is None else f"{flag.name}={flag.value}"
        arguments.append(f"            - {json.dumps(word)}  # {made.comment(flag.reason)}")
    secrets = []
    for variable, why in made.secrets.items():
        key = variable.lower().replace("_", "-")
        secrets += [
            f"            - name: {variable}  # {made.comment(why)}",
            "              valueFrom:",
            f"                secretKeyRef: {{name: {name}-secrets, key: {key}, optional: true}}",
        ]
    address = (
        f"\n            - name: VLLM_NIXL_SIDE_CHANNEL_HOST  # {say('side_channel')}\n"
        "              valueFrom: {fieldRef: {fieldPath: status.podIP}}"
        if settings.role
        else ""
    )
    told_by_replicas = Sentence("launch.note_replicas", replicas=f"{settings.replicas}")
    notes = "".join(f"# {made.comment(note)}\n" for note in made.notes if note != told_by_replicas)
    keys = " ".join(f'--from-literal={variable.lower().replace("_", "-")}="${variable}"' for variable in made.secrets)
    before = say("before", command=f"kubectl create secret generic {name}-secrets {keys}")
    return f"""\
# {made.head}
{notes}# {before}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {name}
  labels: {{app.kubernetes.io/name: {name}}}
spec:
  replicas: {settings.replicas}  # {say("of_accelerators", devices=f"{settings.devices}")}
  selector:
    matchLabels: {{app.kubernetes.io/name: {name}}}
  template:
    metadata:
      labels: {{app.kubernetes.io/name: {name}}}
    spec:
      containers:
        - name: vllm
          image: {made.image}  # {say("pinned")}
          args:
{chr(10).join(arguments)}
          env:
{chr(10).join(secrets)}{address}
          ports:
            - containerPort: {made.port}
          resources:
            limits: {{{resource}: {settings.devices}}}  # {say("one_node")}
          startupProbe:  # {say("loading")}
            httpGet: {{path: /health, port: {made.port}}}
            periodSeconds: 10
            failureThreshold: 180
          readinessProbe:
            httpGet: {{path: /health, port: {made.port}}}
            periodSeconds: 5
          volumeMounts:
            - {{name: shared-memory, mountPath: /dev/shm}}  # {say("shared_memory")}
      volumes:
        - name: shared-memory
          emptyDir: {{medium: Memory}}
---
apiVersion: v1
kind: Service
metadata:
  name: {name}
spec:
  selector: {{app.kubernetes.io/name: {name}}}
  ports:
    - {{port: 80, targetPort: {made.port}}}
"""
