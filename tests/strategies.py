"""What property tests draw from: deployments small and large, dense and mixtures, on one device and many."""

from hypothesis import settings
from hypothesis import strategies as st

from batchline.deployment import Deployment

MODELS = ("llama-3.1-8b", "llama-3.1-70b", "qwen3-32b", "deepseek-v3", "gpt-oss-120b", "mixtral-8x7b")
DEVICES = ("h100", "h200", "b200", "mi300x", "a100")
LAYOUTS = ((1, 1, 1), (2, 1, 1), (4, 1, 1), (8, 1, 1), (2, 2, 1), (1, 1, 8), (4, 2, 1), (2, 1, 4))


def examples(count: int) -> int:
    """So many examples in the default run; as many times more in a profile that tries more."""
    return round(count * settings().max_examples / settings.get_profile("default").max_examples)


@st.composite
def deployments(draw, formats=(None, "bf16", "fp8")):
    """Any of the models on any of the devices, whether it fits or not."""
    tp, pp, dp = draw(st.sampled_from(LAYOUTS))
    device = draw(st.sampled_from(DEVICES))
    weights = draw(st.sampled_from(formats))
    if device == "a100" and weights != "bf16":
        weights = "bf16"  # no fp8 units, and a checkpoint's own format may need them
    return Deployment.of(
        draw(st.sampled_from(MODELS)),
        device,
        count=tp * pp * dp,
        tp=tp,
        pp=pp,
        dp=dp,
        weights=weights,
        kv=draw(st.sampled_from(("bf16", "fp8"))),
    )
