"""The command that starts a plan: vLLM, SGLang, TensorRT-LLM, llama.cpp, and a Kubernetes manifest for vLLM.

Every flag carries its reason as a comment, and comes from `data/launch_flags.toml`, which says for which version of the
engine it was read and where. Secrets are named, never written: the script reads them from the environment, the manifest
from a Kubernetes secret.

    settings    what a server is started with, whatever its engine
    flags       the flags that carry the settings, each with its reason
    command     Launch: program, flags, file, notes
    shell       as a shell script
    kubernetes  as a Deployment and a Service
    planned     the commands of a deployment that a plan found
"""

from batchline.launch.command import Launch, engines, launch
from batchline.launch.flags import Flag
from batchline.launch.kubernetes import manifest
from batchline.launch.planned import settings_of, starts
from batchline.launch.settings import Settings
from batchline.launch.shell import script

__all__ = ["Flag", "Launch", "Settings", "engines", "launch", "manifest", "script", "settings_of", "starts"]
