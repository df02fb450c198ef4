"""Names as Hugging Face, vendors' tools and result files write them mean what the catalogue has."""

import pytest

from batchline import served_names
from batchline.errors import UnknownNameError


@pytest.mark.parametrize(
    ("written", "name", "weights"),
    [
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b", None),
        ("Llama 3.1 70B", "llama-3.1-70b", None),
        ("llama3-70b", "llama-3-70b", None),
        ("GPT-OSS 120B", "gpt-oss-120b", None),
        ("QWEN3-32B", "qwen3-32b", None),
        ("/mnt/models/Llama-3.1-70B", "llama-3.1-70b", None),
        ("Qwen/Qwen2.5-72B-Instruct-AWQ", "qwen2-72b", "awq"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "llama-3.1-8b", "int4"),
        ("hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", "llama-3.1-70b", "awq"),
        ("neuralmagic/Meta-Llama-3.1-70B-Instruct-FP8", "llama-3.1-70b-fp8", None),
        ("nvidia/DeepSeek-R1-0528-NVFP4", "deepseek-v3.1-nvfp4", None),
        ("amd/Llama-3.1-405B-Instruct-MXFP4-Preview", "llama-3.1-405b", "mxfp4"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "llama-3.1-70b", None),
        ("nvidia/Kimi-K2-Thinking-NVFP4", "kimi-k2.5-nvfp4", None),
        ("moonshotai/Kimi-K2-Instruct-0905", "kimi-k2", None),
        ("deepseekv3", "deepseek-v3", None),
    ],
)
def test_models(written, name, weights):
    architecture, found = served_names.model_of(written)
    assert (architecture.name, found) == (name, weights)


@pytest.mark.parametrize(
    ("written", "stated", "name", "weights"),
    [
        ("Qwen/Qwen3-32B", "FP8", "qwen3-32b", "fp8"),
        ("Qwen/Qwen3-32B-FP8", "fp8", "qwen3-32b-fp8", None),
        ("deepseek-ai/DeepSeek-R1", "fp8", "deepseek-r1", None),
        ("deepseek-ai/DeepSeek-R1", "FP4", "deepseek-v3.1-nvfp4", None),
        ("openai/gpt-oss-120b", "mxfp4", "gpt-oss-120b", None),
        ("openai/gpt-oss-120b", "fp4", "gpt-oss-120b", None),
        ("meta-llama/Llama-2-70b-hf", "fp16", "llama-2-70b", None),
        ("llama-3.1-70b", "w4a16", "llama-3.1-70b", "int4"),
        ("llama-3.1-8b", "Q4_K_M", "llama-3.1-8b", "q4_k_m"),
        ("llama-3.1-8b", "nan", "llama-3.1-8b", None),
    ],
)
def test_models_with_a_format_beside_them(written, stated, name, weights):
    architecture, found = served_names.model_of(written, stated)
    assert (architecture.name, found) == (name, weights)


@pytest.mark.parametrize(
    ("written", "name", "count"),
    [
        ("H100-SXM5-80GB", "h100-sxm", None),
        ("NVIDIA H100 80GB HBM3", "h100-sxm", None),
        ("NVIDIA H200", "h200-sxm", None),
        ("h100_sxm", "h100-sxm", None),
        ("8xH100", "h100-sxm", 8),
        ("H100 x8", "h100-sxm", 8),
        ("NVIDIA HGX B200", "b200", None),
        ("B200-SXM-192GB", "b200", None),
        ("AMD Instinct MI300X OAM", "mi300x", None),
        ("A100-PCIE-40GB", "a100-40gb", None),
        ("NVIDIA GeForce RTX 4090", "rtx-4090", None),
        ("2xRTX 4090", "rtx-4090", 2),
        ("GB200 NVL72", "gb200", None),
        ("H100-SXM5-80GB (power capped)", "h100-sxm", None),
    ],
)
def test_accelerators(written, name, count):
    assert served_names.accelerator_of(written) == (name, count)


@pytest.mark.parametrize(
    ("written", "name", "version"),
    [
        ("vLLM 0.9.1", "vllm", "0.9.1"),
        ("vllm-0.8.5.post1", "vllm", "0.8.5.post1"),
        ("TRT-LLM", "tensorrt-llm", ""),
        ("trtllm", "tensorrt-llm", ""),
        ("TensorRT-LLM 1.0.0rc3", "tensorrt-llm", "1.0.0rc3"),
        ("dynamo-sglang", "sglang", ""),
        ("SGLang", "sglang", ""),
        ("llama.cpp", "llama-cpp", ""),
        ("LMDeploy", "lmdeploy", ""),
        ("", "unknown", ""),
    ],
)
def test_engines(written, name, version):
    assert served_names.engine_of(written) == (name, version)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("FP8", "fp8"),
        ("FP8_block", "fp8-block"),
        ("fp8_dynamic", "fp8-channel"),
        ("w8a8", "int8"),
        ("int4-awq", "awq"),
        ("W4A16", "int4"),
        ("NVFP4", "nvfp4"),
        ("modelopt_fp4", "nvfp4"),
        ("mxfp4", "mxfp4"),
        ("bf16/fp16", "bf16"),
        ("auto", ""),
        ("N/A", ""),
    ],
)
def test_formats(written, name):
    assert served_names.format_of(written) == name


def test_what_nobody_knows_is_refused_with_the_closest():
    with pytest.raises(UnknownNameError, match=r"glm-4\.5-air"):
        served_names.model_of("zai-org/GLM-4.5")
    with pytest.raises(UnknownNameError, match="V100"):
        served_names.accelerator_of("V100")
    with pytest.raises(UnknownNameError, match="fp6"):
        served_names.format_of("fp6")
