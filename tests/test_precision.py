"""Number formats: published bits per weight, exact bytes of a matrix, every row with its source."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchline import precision
from batchline.errors import InputError, UnknownNameError

# Bits per weight as published: gpt-oss model card (4.25), NVFP4 (4.5), the blocks of ggml (bytes x 8 / weights),
# DeepSeek-V3 fp8 (8 + 32/128^2), GPTQ and AWQ with group 128 (4 + 16/128, and 4 bits more for a zero point).
PUBLISHED = {
    "bf16": 16, "fp32": 32, "fp8-block": 8 + 32 / 128**2, "mxfp8": 8.25, "int4": 4.125, "awq": 4.15625, "gptq": 4.15625,
    "mxfp4": 4.25, "nvfp4": 4.5, "q4_0": 4.5, "q4_1": 5.0, "q5_0": 5.5, "q5_1": 6.0, "q8_0": 8.5, "q2_k": 2.625,
    "q3_k": 3.4375, "q4_k": 4.5, "q5_k": 5.5, "q6_k": 6.5625, "q8_k": 9.125, "iq1_s": 1.5625, "iq1_m": 1.75,
    "iq2_xxs": 2.0625, "iq2_xs": 2.3125, "iq2_s": 2.5625, "iq3_xxs": 3.0625, "iq3_s": 3.4375, "iq4_nl": 4.5,
    "iq4_xs": 4.25, "tq1_0": 1.6875, "tq2_0": 2.0625, "q1_0": 1.125,
}  # fmt: skip


@pytest.mark.parametrize(("name", "bits"), PUBLISHED.items())
def test_bits_per_weight_are_those_published(name, bits):
    assert precision.load(name).bits_per_weight == bits


@pytest.mark.parametrize("name", precision.names())
def test_every_format_has_a_source_and_a_known_rate(name):
    number_format = precision.load(name)
    assert number_format.source
    assert number_format.date
    assert number_format.math in {"bf16", "fp8", "int8", "fp4", "fp32"}
    assert number_format.scope in {"linear", "all"}
    assert number_format.bits <= number_format.bits_per_weight <= number_format.bits * 2


def test_weight_only_formats_multiply_in_bf16():
    for name in ("int4", "awq", "gptq", "mxfp4", "nf4", "w8a16", "nvfp4-w4a16", "q4_k", "q8_0"):
        assert precision.load(name).math == "bf16"


@given(st.sampled_from(precision.names()), st.integers(1, 40), st.integers(1, 40))
def test_bytes_of_a_matrix_of_whole_blocks(name, rows, columns):
    number_format = precision.load(name)
    rows, columns = rows * 128, columns * 256
    expected = rows * columns * number_format.bits_per_weight / 8
    extra = number_format.matrix_bytes(rows, columns) - expected
    assert 0 <= extra <= rows * 4 + 8  # scales of whole rows or of the matrix, which bits_per_weight leaves out


@given(st.sampled_from(precision.names()), st.integers(1, 5000), st.integers(1, 5000))
def test_a_cut_block_keeps_its_scale(name, rows, columns):
    number_format = precision.load(name)
    size = number_format.matrix_bytes(rows, columns)
    assert size >= rows * columns * number_format.bits / 8
    assert number_format.matrix_bytes(rows + 1, columns) > size
    assert number_format.matrix_bytes(rows, columns + 1) > size


def test_fp8_blocks_that_stick_out():
    # 129 x 129 weights need 2 x 2 scales of 4 bytes
    assert precision.load("fp8-block").matrix_bytes(129, 129) == 129 * 129 + 16


def test_group_sizes_in_the_name():
    assert precision.load("int4-g32").bits_per_weight == 4.5
    assert precision.load("awq-g64").bits_per_weight == 4 + 20 / 64
    assert precision.load("fp8-block-64x64").bits_per_weight == 8 + 32 / 64**2
    for wrong in ("fp8-g128", "bf16-g32", "int4-g0", "int4-g-1", "fp8-block-0x4", "int4-g9999999999"):
        with pytest.raises(UnknownNameError):
            precision.load(wrong)


@given(st.text(max_size=30))
def test_any_name_is_found_or_refused(name):
    if name.strip().casefold() in known_names():
        assert precision.load(name)
    else:
        with pytest.raises(UnknownNameError, match="number format"):
            precision.load(name)


def known_names():
    return set(precision._formats())


# KV bytes per element: engines' own documents; llama.cpp block sizes / 32.
KV = {
    "bf16": 2, "fp16": 2, "auto": 2, "fp8": 1, "fp8_e5m2": 1, "int8": 1, "nvfp4": 0.5625, "q8_0": 34 / 32,
    "q5_1": 24 / 32, "q5_0": 22 / 32, "q4_1": 20 / 32, "q4_0": 18 / 32,
}  # fmt: skip


@pytest.mark.parametrize(("name", "size"), KV.items())
def test_kv_bytes_per_element(name, size):
    assert precision.kv_bytes_per_element(name) == size


def test_kv_layout_of_latent_attention():
    assert precision.load_kv("fp8_ds_mla").latent_bytes(512, 64) == 656
    with pytest.raises(InputError, match="latent attention"):
        precision.kv_bytes_per_element("fp8_ds_mla")
    with pytest.raises(UnknownNameError, match="KV-cache format"):
        precision.load_kv("fp7")


def test_every_kv_format_has_a_source():
    for name in precision.kv_names():
        kv_format = precision.load_kv(name)
        assert kv_format.source
        assert kv_format.date
        assert math.isfinite(kv_format.index_bits)
