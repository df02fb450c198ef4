"""The commands of a deployment that a plan found."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from batchline.accelerator import Accelerator
from batchline.architecture import Architecture, catalogue
from batchline.engine import Request, account
from batchline.errors import InputError
from batchline.launch.command import Launch, launch
from batchline.launch.settings import ROLES, Settings
from batchline.strings import Sentence

if TYPE_CHECKING:
    from batchline.planner import Candidate, Question

__all__ = ["settings_of", "starts"]


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
    if bool(role) != (candidate.prefill is not None) or role not in ("", *ROLES):
        problem = "error.replicas_apart" if candidate.prefill else "error.replicas_do_both"
        raise InputError(Sentence(problem, title=candidate.title), "", Sentence("error.role_for_apart"))
    arch, device = Architecture.load(question.model), Accelerator.load(candidate.accelerator)
    shape = candidate.prefill if candidate.prefill is not None and role == "prefill" else candidate
    # A prefill replica holds few requests: those whose prompts are computed or wait to be fetched.
    slots = candidate.max_num_seqs if role != "prefill" else None
    layout = {name: getattr(shape, name) for name in ("tp", "pp", "dp", "ep")}
    made = account(
        arch,
        device,
        candidate.engine,
        weights=None if candidate.weights == arch.weight_format else candidate.weights,
        kv=candidate.kv,
        **layout,
        request=Request(
            max_model_len=question.longest,
            max_num_seqs=None if slots is None else max(1, slots // shape.dp),
            max_num_batched_tokens=shape.max_num_batched_tokens,
        ),
    )
    ids = {row["name"]: row["hf_id"] for row in catalogue()}
    return Settings(
        model=ids.get(arch.name) or str(question.model),
        **layout,
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
        why_max_num_seqs=_why_no_more(candidate, question),
        memory_bytes=made.memory_bytes,
        weight_bytes_per_device=made.weight_bytes,
        replicas=shape.replicas,
        role=role,
        vendor=device.vendor,
    )


def _why_no_more(candidate: Candidate, question: Question) -> str:
    """Why not more sequences together."""
    if candidate.saturated_by == "step_limit":
        promise = question.tpot or question.itl or question.e2e
        return Sentence("launch.most_step_limit", promise=str(promise))
    if candidate.saturated_by in ("kv", "max_num_seqs", "prefill"):
        return Sentence(f"launch.most_{candidate.saturated_by}")
    return Settings.why_max_num_seqs


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
    roles = ("",) if candidate.prefill is None else ROLES
    made = (dataclasses.replace(settings_of(candidate, question, role), **changes) for role in roles)
    return tuple(dataclasses.replace(launch(candidate.engine, settings), language=language) for settings in made)
