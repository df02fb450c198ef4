"""Worked numbers of the literature, row by row: what formulas and published figures say, and what our functions give.

Every id of the table is named here: computed (`OURS`), a wrong figure that must not come out (`WRONG`), measured on
real hardware (docs/validation.md compares the predictive reading with such points), or at home in another test file.
"""

import ast
import csv
import math

import numpy as np
import pytest

from batchline import roofline as r
from batchline.accelerator import Accelerator
from batchline.architecture import Architecture
from batchline.deployment import capacity_batch

H100 = Accelerator.load("h100")
A100 = Accelerator.load("a100")
V5E = Accelerator.load("v5e")
LLAMA_70B = Architecture.load("llama-3.1-70b")

# LLaMA-2-13B of the scaling book on eight TPU v5e: 26 GB of weights, 6.7 GB of KV at 8,192 tokens, 8 x 0.82 TB/s.
BOOK_BATCHES = np.array([1, 8, 16, 32, 64, 240], dtype=float)


def book_step(kv_gb):
    return r.t_memory(r.t_weights(26e9, 8 * 0.82e12), r.t_kv(BOOK_BATCHES, 8192, kv_gb * 1e9 / 8192, 8 * 0.82e12)) * 1e3


def ridge(device, fmt="bf16", bytes_per_param=2.0):
    return r.ridge_batch(bytes_per_param * 1e9, 1e9, device.flops_for(fmt), device.bandwidth)


def scaling_book_12(serial_form):
    """30B int8 on 16 TPU v5e, 8,192 tokens of 100 kB, batch 256."""
    bandwidth, flops = 16 * 8.1e11, 16 * 1.97e14
    parts = (r.t_compute(256, 30e9, flops), r.t_weights(30e9, bandwidth), r.t_kv(256, 8192, 100e3, bandwidth))
    return (r.t_step_serial if serial_form else r.t_step_bound)(*parts) * 1e3


def balance(model, weights, bytes_per_token=None, rate="bf16"):
    arch = Architecture.load(model)
    return r.balance_context(
        weights, H100.flops_for(rate), bytes_per_token or arch.kv_bytes_per_token(), H100.bandwidth
    )


def attention_parity(model, params):
    arch = Architecture.load(model)
    return 2 * params / arch.attention_flops(1.0)


def matmul(tokens, width):
    """One square fp16 matrix product on an RTX A6000, as LLM-Viewer counts it: operations, bytes, intensity."""
    flops = 2.0 * tokens * width * width
    moved = 2.0 * (width * width + 2 * tokens * width)
    return flops, moved, flops / moved


def viewer(tokens):
    # LLM-Viewer's A6000: 768 GB/s, 309.677 / 2 TFLOPS
    flops, moved, intensity = matmul(tokens, 4096)
    time = r.t_step_bound(flops / (309.677e12 / 2), r.t_weights(moved, 768e9), 0.0)
    return flops, moved, intensity, float(time) * 1e6


def per_device_at_capacity(n):
    return (72e9 - 141.1e9 / n) / 72e9


def mfu_at_twice_the_balance():
    active, flops, kv, bandwidth = 70e9, 989e12, 327680, 3.35e12
    context = 2 * r.balance_context(active, flops, kv, bandwidth)
    batch = 1e12
    step = r.t_step_bound(r.t_compute(batch, active, flops), 0.0, r.t_kv(batch, context, kv, bandwidth))
    return r.mfu(step, batch, active, flops)


def mfu_ceilings_at_balance():
    active, flops, kv, bandwidth = 70e9, 989e12, 327680, 3.35e12
    context = r.balance_context(active, flops, kv, bandwidth)
    batch = 1e12
    compute, fetch = r.t_compute(batch, active, flops), r.t_kv(batch, context, kv, bandwidth)
    return [r.mfu(step(compute, 0.0, fetch), batch, active, flops) for step in (r.t_step_bound, r.t_step_serial)]


def scaling_book_model():
    """64 layers of width 4,096, F 16,384, 32 heads of 256, 8 KV heads, 32,128 tokens, tied."""
    return Architecture.from_config(
        {
            "model_type": "llama",
            "num_hidden_layers": 64,
            "hidden_size": 4096,
            "intermediate_size": 16384,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 256,
            "vocab_size": 32128,
            "tie_word_embeddings": True,
            "max_position_embeddings": 8192,
        }
    )


def scaling_book_matmul():
    """One matmul of LLaMA-3-70B (8,192 x 28,672 in bf16) on 4x8 TPU v5e at batch 64: ICI, HBM, arithmetic in us."""
    batch, width, wide, chips = 64, 8192, 28672, 32
    ici = 2 * batch * width / 9e10
    hbm = r.t_weights(2 * width * wide, chips * 8.1e11)
    math_time = r.t_compute(batch, width * wide, chips * 1.97e14)
    return [ici * 1e6, hbm * 1e6, math_time * 1e6]


OURS = {
    # The lecture
    "L01": lambda: r.drain_time(288e9, 20e12) * 1e3,
    "L02": lambda: ridge(H100),
    "L03": lambda: 300 * 8,
    "L04": lambda: 2000 * 64,
    "L05": lambda: 2 * 20,
    "L06": lambda: r.balance_context(100e9 / 2, 300.0, 1.0, 1.0) / 200e3,
    "L07": lambda: 1 * 2 * 128 * 8 * 1,
    "L08": mfu_at_twice_the_balance,
    "L09": lambda: 8 / 8 * 1 * 2,
    "L10": lambda: [700 / 64, 700 / 64 / 4],
    "L11": lambda: [3 * 3 / 6, 2 * 3 / 6],
    "L12": lambda: 50e6 * 60 * 86400,
    "L13": lambda: 200e12 / (20 * 100e9),
    # Erdil
    "E01": lambda: r.ridge_batch(2.0, 1.0, 1e15, 3.3e12),
    "E08": lambda: 88 * 8 * 2 * 128 * 2,
    "E10": lambda: r.t_weights(244e9, 1.0) / r.t_kv(1, 100e3, 360448, 1.0),
    "E11": lambda: 2 * 8 / 2,
    "E12": lambda: r.expert_coverage(np.array([1.0, 4.0, 64.0]), 4, 1),
    # The scaling book; its v5e has 8.2e11 B/s, ours 819 GB/s
    "S01": lambda: [ridge(V5E), ridge(V5E, bytes_per_param=1.0), ridge(V5E, "int8", 1.0)],
    "S02": lambda: LLAMA_70B.kv_bytes_per_token() / 2,
    "S03": lambda: LLAMA_70B.stored_bytes(32768) / 2 / 1e9,
    "S04": lambda: r.t_memory(r.t_weights(70e9, 8 * 8.1e11), r.t_kv(32, 8192, 41.9e9 / 32 / 8192, 8 * 8.1e11)) * 1e3,
    "S05": lambda: [32 / 0.017, 32 / 0.017 / 8],
    "S06": lambda: r.drain_time(V5E.memory, 8.2e11) * 1e3,
    "S07": lambda: capacity_batch(256e9, 1.0, 140e9, 324e3 * 8192),
    "S08": lambda: 43 / (0.019 * 512 * 16),
    "S09": lambda: r.t_compute(8192, 70e9, 16 * 1.97e14 * 0.4),
    "S10": lambda: 32 * (8192 + 4096) / 4096,
    "S11": lambda: 0.91 / (0.019 * 512) * 32,
    "S12": lambda: [
        r.t_step_serial(
            r.t_compute(4, 30e9, 16 * 1.97e14),
            r.t_weights(30e9, 16 * 8.1e11),
            r.t_kv(4, 8192, 100e3, 16 * 8.1e11),
        )
        * 1e3,
        scaling_book_12(serial_form=True),
    ],
    "S13": lambda: book_step(6.7),
    "S14": lambda: BOOK_BATCHES / book_step(6.7) * 1e3,
    "S15": lambda: book_step(6.7 / 5),
    "S16": lambda: scaling_book_model().total_params - scaling_book_model().parts()["norm"],  # the book counts matrices
    "S17": lambda: scaling_book_model().kv_bytes_per_token() / 2,
    "S18": lambda: 16384 / (32 * 8),
    "S19": scaling_book_matmul,
    "S20": lambda: 8 * 4.5e10 * 1e-6 / 1e3,
    "S21": lambda: [1000 * 1000 / 2000, 1 * 1000 / 1001],
    "P11": lambda: r.t_kv(512, 2048, 118 * 2 * 48 * 128 * 2, 1.0) / 1e12,
    # kipply
    "K01": lambda: r.ridge_batch(2.0, 1.0, 312e12, 1.5e12),
    "K02": lambda: r.t_weights(12 * 2 * 64 * 8192**2, 1.5e12) * 1e3,
    "K03": lambda: 4 * 64 * 8192,
    "V19": lambda: list(viewer(1)),
    "V20": lambda: [*viewer(2048)[:3], r.ridge_batch(2.0, 1.0, 309.677e12 / 2, 768e9), viewer(2048)[3]],
    # Arithmetic on the sources
    "C01": lambda: 256 * r.expert_coverage(np.array([1.0, 8, 32, 64, 128, 256]), 256, 8),
    "C02": lambda: r.ridge_batch(2.0 * 671e9, 37e9, 295.4, 1.0),
    "C03": lambda: r.expert_coverage(b := np.array([8.0, 32, 64, 256]), 256, 8) / b / r.expert_coverage(1.0, 256, 8),
    "C04": lambda: [
        attention_parity("llama-3.1-8b", 8.03e9),
        attention_parity("llama-3.1-70b", 70.55e9),
        attention_parity("llama-3.1-405b", 405.85e9),
    ],
    "C05": lambda: [
        Architecture.load("deepseek-v3").attention_flops(1.0),
        2 * 37e9 / Architecture.load("deepseek-v3").attention_flops(1.0),
    ],
    "C06": lambda: [
        balance("llama-3.1-8b", 8.03e9),
        balance("llama-3.1-70b", 70.55e9),
        balance("deepseek-v3", 37e9, rate="fp8"),
    ],
    "C07": lambda: r.batch_within(0.1, r.t_weights(141.1e9, 1.0), r.t_kv(1, 8192, 327680, 1.0)),
    "C08": lambda: capacity_batch(4 * 80e9, 0.9, 141.1e9, 327680 * 2335),
    "C09": lambda: [
        r.drain_time(
            Accelerator.load(name).memory if name != "b200" else 192e9, bandwidth or Accelerator.load(name).bandwidth
        )
        * 1e3
        for name, bandwidth in (
            ("a100", None),
            ("h100", None),
            ("h200", None),
            ("b200", 8e12),
            ("v5e", 8.2e11),
            ("tpu-v4", None),
            ("mi300x", None),
        )
    ],
    "C10": lambda: [
        *(ridge(Accelerator.load(name)) for name in ("a100", "h100", "h200")),
        r.ridge_batch(2.0, 1.0, 2250e12, 8e12),
        r.ridge_batch(2.0, 1.0, 197e12, 8.2e11),
        ridge(Accelerator.load("tpu-v4")),
    ],
    "C11": lambda: r.drain_time(20e12, 285e6),
    "C13": lambda: [scaling_book_12(serial_form=False), scaling_book_12(serial_form=True)],
    "C14": mfu_ceilings_at_balance,
    "C15": lambda: per_device_at_capacity(8) / per_device_at_capacity(4),
}

# Wrong figures in print: the arithmetic that we do instead gives `right`.
WRONG = {
    "X01": lambda: [capacity_batch(128e9, 1.0, 70e9, 163840 * 8192), capacity_batch(64e9, 1.0, 35e9, 81920 * 8192)],
    "X02": lambda: [capacity_batch(512e9, 1.0, 140e9, 324e3 * 8192)],
    "X03": lambda: [r.balance_context(100e9 / 2, 300.0, 1.0, 1.0)],
    "X04": lambda: [r.drain_time(72 * 288e9, 72 * 8e12) * 1e3],
}
PRINTED_WRONG = {"X01": [52, 67], "X02": [161], "X04": [200]}

ELSEWHERE = {
    "tests/test_worked_economics.py (part 5)": "L15 L16 L17 L18 E09 E13 D01 D02 D03 D04 D05 D06 D07 D08",
    "tests/test_serving.py (parts 3 and 6)": "E15 Q01 Q02 Q03",
    "part 3, terms of communication: Erdil's network model is a rival's, ours is fitted": (
        "E02 E03 E04 E05 E06 E07 E14 E20 E21 E22 E23 E24 E25 E26 E27 E28 E29 K04 K05"
    ),
    "part 6, stability of a loaded server": "Q04 Q05",
    "measured on hardware, for docs/validation.md (part 3)": (
        "P01 P02 P03 P04 P05 P06 P07 P08 P09 P10 P12 P13 K06 K07 C12 "
        "V01 V02 V03 V04 V05 V06 V07 V08 V09 V10 V11 V12 V13 V14 V15 V16 V17 V18"
    ),
    "about training, not about serving": "L14",
    "a remark on data or wording, nothing to compute": "X05 X06",
}


@pytest.fixture(scope="module")
def rows(shared):
    with (shared / "worked_numbers.csv").open(encoding="utf-8", newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def test_every_row_has_a_place(rows):
    homes = [*OURS, *WRONG, *(row for ids in ELSEWHERE.values() for row in ids.split())]
    assert sorted(homes) == sorted(set(homes)), "a row stands in two places"
    assert set(homes) == set(rows)
    for row in OURS:
        assert rows[row]["kind"] in {"formula", "published"}
    for row in WRONG:
        assert rows[row]["kind"] == "known-bad"


@pytest.mark.parametrize("row", OURS)
def test_our_functions_give_the_worked_number(rows, row):
    expected = np.atleast_1d(np.array(ast.literal_eval(rows[row]["expected"]), dtype=float))
    got = np.atleast_1d(np.array(OURS[row](), dtype=float))
    tolerance = float(rows[row]["tolerance"])
    # Printed to so many digits: half a unit of the last one is no error.
    digits = 0.5 * 10.0 ** -max(len(part.partition(".")[2].strip(" ]")) for part in rows[row]["expected"].split(","))
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=digits)


@pytest.mark.parametrize("row", PRINTED_WRONG)
def test_wrong_figures_do_not_come_out(row):
    for got, printed in zip(WRONG[row](), PRINTED_WRONG[row], strict=True):
        assert not math.isclose(got, printed, rel_tol=0.05)
