"""Kubernetes manifests: a Deployment and a Service for each command."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from batchline.errors import InputError
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchline.launch.command import Launch
    from batchline.launch.settings import Settings

__all__ = ["manifest", "manifest_of"]

_RESOURCE: Final = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu"}
"""What the device plugins of Kubernetes call an accelerator."""
_NAME_LENGTH: Final = 53
"""Characters left for a name of at most 63 (a DNS label, RFC 1123) once a role is added."""


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
    return "---\n".join(map(manifest_of, made))


def manifest_of(made: Launch) -> str:
    """Write the manifests of one command.

    Parameters
    ----------
    made : Launch
        The command.

    Returns
    -------
    str
        YAML documents.

    Raises
    ------
    InputError
        The engine has no manifest here, or a replica needs accelerators that no device plugin is known for.
    """
    settings = made.settings
    if not made.image:
        raise InputError(Sentence("error.no_manifest", engine=made.engine), Sentence("error.manifest_for"))
    if settings.vendor not in _RESOURCE:
        raise InputError(
            Sentence("error.no_resource", vendor=settings.vendor),
            Sentence("error.known", names=", ".join(_RESOURCE)),
            Sentence("error.take_script"),
        )

    def say(key: str, **fields: str) -> str:
        return made.comment(Sentence(f"launch.{key}", **fields))

    name = _name(settings)
    replicas = Sentence("launch.note_replicas", replicas=f"{settings.replicas}")  # what a Deployment sees to
    notes = "".join(f"# {made.comment(note)}\n" for note in made.notes if note != replicas)
    keys = " ".join(f'--from-literal={_key(variable)}="${variable}"' for variable in made.secrets)
    return f"""\
# {made.head}
{notes}# {say("before", command=f"kubectl create secret generic {name}-secrets {keys}")}
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
{_arguments(made)}
          env:
{_environment(made, name)}
          ports:
            - containerPort: {made.port}
          resources:
            limits: {{{_RESOURCE[settings.vendor]}: {settings.devices}}}  # {say("one_node")}
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


def _name(settings: Settings) -> str:
    model = (settings.served_name or settings.model).rsplit("/", 1)[-1].lower()
    name = re.sub(r"[^a-z0-9]+", "-", model).strip("-")[:_NAME_LENGTH]
    return f"{name}-{settings.role}" if settings.role else name


def _key(variable: str) -> str:
    return variable.lower().replace("_", "-")


def _arguments(made: Launch) -> str:
    lines = [f"            - {json.dumps(made.settings.model)}"]
    for flag in made.flags:
        word = flag.name if flag.value is None else f"{flag.name}={flag.value}"
        lines.append(f"            - {json.dumps(word)}  # {made.comment(flag.reason)}")
    return "\n".join(lines)


def _environment(made: Launch, name: str) -> str:
    lines = []
    for variable, why in made.secrets.items():
        lines += [
            f"            - name: {variable}  # {made.comment(why)}",
            "              valueFrom:",
            f"                secretKeyRef: {{name: {name}-secrets, key: {_key(variable)}, optional: true}}",
        ]
    if made.settings.role:
        lines += [
            f"            - name: VLLM_NIXL_SIDE_CHANNEL_HOST  # {made.comment(Sentence('launch.side_channel'))}",
            "              valueFrom: {fieldRef: {fieldPath: status.podIP}}",
        ]
    return "\n".join(lines)
