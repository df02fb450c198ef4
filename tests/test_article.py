"""The article, statement by statement: each test backs one verdict of docs/article.md and docs/article.ko.md.

A verdict names its test; a page that names a test that is not here, or leaves one out, fails, and so does one whose
figures are not what the code computes. Measured figures come from the sources that the pages name, by the ids of the
table of worked numbers.
"""

import ast
import csv
import re
from dataclasses import replace
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import numpy as np
import pytest

from batchline import readings, roofline, step
from batchline.architecture import Architecture
from batchline.deployment import Deployment, capacity_batch
from batchline.units import format_time, format_usd

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = {"en": DOCS / "article.md", "ko": DOCS / "article.ko.md"}

# The model of the pages' plots: Llama-3.1-8B in bf16 on one H100 at $2.50 an hour.
HOURLY = 2.50
ONE = Deployment.of("llama-3.1-8b", "h100", usd_per_device_hour=HOURLY)
MODEL, BANDWIDTH, FLOPS = ONE.architecture, ONE.bandwidth, ONE.flops
KV = MODEL.kv_bytes_per_token()
W = float(ONE.step_weight_bytes(1))
SHORT, LONG = 256, 4096  # tokens of context below and above the balance
BATCHES = np.unique(np.round(np.geomspace(1, 1e5, 200)))
BALANCE = roofline.balance_context(MODEL.active_params, FLOPS, KV, BANDWIDTH)
KNEE = roofline.knee_batch(W, MODEL.active_params, FLOPS, SHORT, KV, BANDWIDTH)


def parts(batch, context):
    return (
        roofline.t_compute(batch, MODEL.active_params, FLOPS),
        roofline.t_weights(W, BANDWIDTH) + 0 * batch,
        roofline.t_kv(batch, context, KV, BANDWIDTH),
    )


def cost(batch, context, of=roofline.t_step_bound):
    return roofline.usd_per_mtok(of(*parts(batch, context)), batch, HOURLY)


def slope(values):
    return np.diff(values) / np.diff(BATCHES)


@pytest.fixture(scope="module")
def worked(shared):
    with (shared / "worked_numbers.csv").open(encoding="utf-8", newline="") as file:
        table = {row["id"]: row["expected"] for row in csv.DictReader(file)}
    return lambda row: ast.literal_eval(table[row])


# --- What a step depends on -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("context", [SHORT, LONG])
def test_memory_and_compute_bound_a_step_from_below(context):
    compute, weights, kv = parts(BATCHES, context)
    longer = np.maximum(compute, weights + kv)
    assert roofline.t_step_bound(compute, weights, kv) == pytest.approx(longer)
    for reading in readings.READINGS:
        found = readings.steps(ONE, context, BATCHES, reading)
        assert np.all(found.t_step >= longer * (1 - 1e-9)), reading


def test_engines_fetch_the_kv_cache_outside_the_overlap():
    bound, serial = (of(*parts(BATCHES, BALANCE)) for of in (roofline.t_step_bound, roofline.t_step_serial))
    assert np.all((bound <= serial) & (serial <= 2 * bound))
    assert serial[-1] / bound[-1] == pytest.approx(2, rel=0.01)


def test_memory_time_is_weights_plus_kv_over_bandwidth():
    assert roofline.t_memory(*parts(32, LONG)[1:]) == pytest.approx((W + 32 * LONG * KV) / BANDWIDTH)
    # The input embedding is looked up, not read: 525 million of 8.03 billion parameters here.
    assert W == 2 * (MODEL.total_params - MODEL.vocab_size * MODEL.hidden_size) == 2 * MODEL.active_params


def test_a_mixture_reads_only_the_experts_that_it_touches():
    mixture = Deployment.of("deepseek-v3", "8xh200")
    read = [float(mixture.step_weight_bytes(batch)) for batch in (1, 32, 1e6)]
    assert read[0] / read[2] == pytest.approx(0.056, abs=5e-4)
    shared, routed = mixture.architecture.step_weight_bytes()
    assert (read[1] - shared) / routed == pytest.approx(1 - (1 - 8 / 256) ** 32) == pytest.approx(0.638, abs=5e-4)


def test_kv_bytes_are_batch_times_context_times_bytes_per_token():
    assert float(ONE.kv_read_bytes(LONG)) == LONG * KV
    assert KV == 2 * 8 * 128 * 2 * 32  # key and value, 8 heads of 128 elements of 2 bytes, 32 layers


def test_windows_and_latents_read_less():
    # 36 layers of 8 heads of 64 elements, every second one with a window of 128 tokens
    windowed, every_layer = Architecture.load("gpt-oss-120b"), 2 * 8 * 64 * 2 * 36
    assert windowed.read_bytes(100_000) / (100_000 * every_layer) == pytest.approx(0.5, abs=0.001)
    latent, heads = Architecture.load("deepseek-v3").kv_bytes_per_token(), 2 * 128 * 128 * 2 * 61
    assert latent == (512 + 64) * 2 * 61
    assert heads / latent == pytest.approx(57, abs=0.5)


def test_compute_time_needs_a_factor_of_two_with_datasheet_rates():
    counted_once = MODEL.active_params * 32 / FLOPS
    assert roofline.t_compute(32, MODEL.active_params, FLOPS) == 2 * counted_once
    ridge = roofline.ridge_batch(2 * 70e9, 70e9, FLOPS, BANDWIDTH)
    assert ridge == pytest.approx(295, abs=0.5)
    assert roofline.ridge_batch(2 * 70e9, 70e9 / 2, FLOPS, BANDWIDTH) == pytest.approx(2 * ridge)


def parity(name):
    """Context at which attention takes as many FLOPs as the weights, for one decoded token [token]."""
    arch = Architecture.load(name)
    return 2 * arch.active_params / arch.attention_flops(1.0)


def test_attention_is_small_only_at_short_contexts():
    assert MODEL.attention_flops(SHORT) < 0.01 * 2 * MODEL.active_params
    assert 28e3 < parity("llama-3.1-8b") < 29e3
    assert parity("deepseek-v3") < 4400


# --- The six plots ----------------------------------------------------------------------------------------------------


def test_plot_1_1_compute_and_kv_are_lines_weights_are_level():
    compute, weights, kv = parts(BATCHES, SHORT)
    for line in (compute, kv):
        assert slope(line) == pytest.approx(slope(line)[0])
        assert line[0] == pytest.approx(slope(line)[0])  # through the origin
    assert np.all(weights == weights[0])


def test_plot_1_1_weights_of_a_mixture_rise():
    read = Deployment.of("deepseek-v3", "8xh200").step_weight_bytes(BATCHES)
    assert np.all(np.diff(read) >= 0)
    assert read[-1] > 15 * read[0]


def test_plot_1_2_memory_starts_at_the_weights():
    assert roofline.t_memory(*parts(0, SHORT)[1:]) == roofline.t_weights(W, BANDWIDTH)


def test_plot_1_3_latency_rises_from_a_floor():
    for context in (SHORT, LONG):
        taken = roofline.t_step_bound(*parts(BATCHES, context))
        assert np.all(np.diff(taken) >= 0)
        assert np.all(taken > roofline.t_weights(W, BANDWIDTH))


def test_plot_2_1_compute_and_kv_are_level_weights_a_hyperbola():
    compute, weights, kv = (part / BATCHES for part in parts(BATCHES, SHORT))
    assert compute == pytest.approx(compute[0])
    assert kv == pytest.approx(kv[0])
    assert weights * BATCHES == pytest.approx(weights[0])


def test_plot_2_2_kv_lifts_the_hyperbola():
    _, weights, kv = parts(BATCHES, SHORT)
    assert roofline.t_memory(weights, kv) / BATCHES - weights / BATCHES == pytest.approx(kv[0])


def test_plot_2_3_cost_is_the_larger_of_the_two():
    compute, weights, kv = (part / BATCHES for part in parts(BATCHES, SHORT))
    dollars = np.maximum(compute, weights + kv) * HOURLY / 3600 * 1e6
    assert cost(BATCHES, SHORT) == pytest.approx(dollars)


# --- The observations -------------------------------------------------------------------------------------------------


def test_cost_falls_to_its_floor():
    floor = [roofline.cost_floor(MODEL.active_params, FLOPS, c, KV, BANDWIDTH) for c in (SHORT, LONG)]
    floors = [roofline.usd_per_mtok(seconds, 1.0, HOURLY) for seconds in floor]
    # Below the balance context it is reached, at the knee.
    assert cost(KNEE, SHORT) == pytest.approx(floors[0])
    assert cost(0.9 * KNEE, SHORT) > 1.01 * floors[0]
    # Above it is only approached: within a tenth from W / (0.1 L kv) on, never reached.
    enough = roofline.batch_within(0.1, W, LONG * KV)
    assert cost(enough, LONG) == pytest.approx(1.1 * floors[1])
    assert np.all(cost(BATCHES, LONG) > floors[1])


def test_a_smaller_batch_is_faster_and_dearer_up_to_the_knee():
    below = BATCHES[BATCHES < KNEE]
    assert np.all(np.diff(roofline.t_step_bound(*parts(below, SHORT))) > 0)
    assert np.all(np.diff(cost(below, SHORT)) < 0)
    # Beyond the knee a batch is only slower.
    assert cost(2 * KNEE, SHORT) == pytest.approx(cost(KNEE, SHORT))
    assert roofline.t_step_bound(*parts(2 * KNEE, SHORT)) == pytest.approx(
        2 * roofline.t_step_bound(*parts(KNEE, SHORT))
    )


def test_compute_is_the_cost_floor_only_below_the_balance_context():
    for context, binding in ((SHORT, 0), (BALANCE / 1.01, 0), (BALANCE * 1.01, 2), (LONG, 2)):
        floor = roofline.cost_floor(MODEL.active_params, FLOPS, context, KV, BANDWIDTH)
        assert floor == parts(1.0, context)[binding]


def test_whether_kv_exceeds_compute_depends_on_the_context_not_on_the_batch():
    for context in (SHORT, LONG):
        compute, _, kv = parts(BATCHES, context)
        assert kv / compute == pytest.approx(context / BALANCE)


def test_mfu_never_falls_with_the_batch():
    for context in (SHORT, LONG):
        for of in (roofline.t_step_bound, roofline.t_step_serial):
            used = roofline.mfu(of(*parts(BATCHES, context)), BATCHES, MODEL.active_params, FLOPS)
            assert np.all(np.diff(used) >= -1e-12)
    ceiling = roofline.mfu(roofline.t_step_bound(*parts(1e9, LONG)), 1e9, MODEL.active_params, FLOPS)
    assert ceiling == pytest.approx(BALANCE / LONG, rel=1e-4)


@pytest.mark.parametrize("context", [0, SHORT, BALANCE, LONG, 120_000])
@pytest.mark.parametrize("reading", readings.READINGS)
def test_cost_never_rises_with_the_batch(reading, context):
    found = readings.steps(ONE, context, BATCHES, reading)
    assert np.all(np.diff(found.usd_per_mtok) <= 1e-12 * found.usd_per_mtok[:-1])


# --- What stops the fall, or turns it, in real systems ----------------------------------------------------------------


def test_effect_kv_capacity_ends_the_curve(worked):
    # Llama-3-70B in bf16 on four H100 of 80 GB, 2,335 tokens a sequence
    full = capacity_batch(4 * 80e9, 0.9, 141.1e9, 327680 * 2335)
    assert full == pytest.approx(worked("C08"), abs=1)
    measured = dict(zip(2 ** np.arange(10), worked("V15"), strict=True))
    assert measured[128] / measured[32] == pytest.approx(1.34, abs=0.005)
    assert measured[512] / measured[256] == pytest.approx(1.03, abs=0.005)
    # A full memory is read once a step, whatever the context: the step is the drain time.
    for context in (1000, 8000):
        batch = (72e9 - W) / (context * KV)
        assert roofline.t_memory(W / BANDWIDTH, roofline.t_kv(batch, context, KV, BANDWIDTH)) == pytest.approx(
            roofline.drain_time(72e9, BANDWIDTH)
        )


def test_effect_over_admission_raises_the_cost(worked):
    kept, preempted = worked("V16")
    assert preempted / kept == pytest.approx(0.60, abs=0.005)
    assert kept / preempted == pytest.approx(1.67, abs=0.005)  # dollars per token


def test_effect_expert_coverage_slows_the_fall():
    each = roofline.expert_coverage(np.array([1.0, 32.0]), 256, 8) / np.array([1.0, 32.0])
    assert each[0] / each[1] == pytest.approx(1.57, abs=0.005)


def test_effect_attention_adds_a_constant_per_token():
    added = Architecture.load("llama-3.1-8b").attention_flops(LONG) / FLOPS
    compute, _, _ = parts(BATCHES, LONG)
    assert (compute + BATCHES * added) / BATCHES == pytest.approx(compute[0] + added)


def engine(**coefficients):
    """Step of the 70B on eight H100 with an ideal engine but for what is named."""
    one = readings.ideal_of(Deployment.of("llama-3.1-70b", "8xh100"), LONG)
    ideal = step.Coefficients()
    return one, step.decode_step(one, replace(ideal, **coefficients), BATCHES)


def test_effect_communication_is_latency_that_the_batch_shares_and_bytes_that_it_does_not(worked):
    one, terms = engine(tp_latency=8e-6, tp_volume=1.9)
    assert np.ptp(terms.tp_latency) == 0
    assert terms.tp_volume / BATCHES == pytest.approx(1.9 * one.tp_volume_s)
    measured = worked("V05")
    assert max(measured[:2]) < 40 < measured[-1] / 4  # us: latency alone up to 131 kB, bytes at 32 MB


def test_effect_host_time_per_sequence_is_a_floor_of_its_own():
    _, terms = engine(sequence_overhead=12e-6, step_overhead=2e-4)
    each = (terms.per_sequence + terms.per_step) / BATCHES
    assert np.all(np.diff(each) < 0)
    assert each[-1] == pytest.approx(12e-6, rel=0.01)


def test_effect_tiles_raise_the_cost_at_their_edges(worked):
    tokens = dict(zip((1, 64, 128, 256, 264, 512, 520, 1024, 4096), worked("V01"), strict=True))
    for before, after, time, dollars in ((256, 264, 0.42, 0.37), (512, 520, 0.67, 0.64)):
        longer = tokens[after] / tokens[before]
        assert longer - 1 == pytest.approx(time, abs=0.006)
        assert longer * before / after - 1 == pytest.approx(dollars, abs=0.01)
    one, _ = engine()
    tiled = step.decode_step(one, step.Coefficients(), np.array([256.0, 264.0]), tile=256).compute
    assert tiled[1] == 2 * tiled[0]


def test_effect_power_lowers_the_rate(worked):
    random, zeros = worked("V18")
    assert random / zeros == pytest.approx(0.87, abs=0.005)


def test_effect_prefill_takes_part_of_every_second():
    decode, prompts = 4000.0, 40_000.0  # tokens a second of each alone
    rates = [1 / (1 / decode + ratio / prompts) for ratio in (0, 1, 10)]
    assert rates == pytest.approx([4000, 3636.4, 2000], rel=1e-4)
    one, _ = engine()
    alone, mixed = (step.mixed_step(one, step.Coefficients(), 64, tokens).total for tokens in (0, 512))
    assert mixed > alone


def chance_imbalance(tokens, devices=8, experts_per_token=8):
    """Load of the fullest device over the mean, when every token picks its experts by chance."""
    picks = np.random.default_rng(0).multinomial(tokens * experts_per_token, [1 / devices] * devices, size=4000)
    return float((picks.max(axis=1) / picks.mean(axis=1)).mean())


def test_effect_imbalance_fades_with_the_batch():
    small, large = chance_imbalance(16), chance_imbalance(256)
    assert small > 1.3
    assert 1 < large < 1.1


# --- The pages --------------------------------------------------------------------------------------------------------


def at(context, batch):
    taken = float(roofline.t_step_bound(*parts(float(batch), context)))
    return f"{format_time(taken)}", format_usd(float(cost(float(batch), context)))


FIGURES = {
    "weights": lambda: [f"{W / 1e9:.1f} GB", format_time(W / BANDWIDTH)],
    "kv": lambda: [f"{KV:,.0f}"],
    "balance": lambda: [f"{BALANCE:.0f}"],
    "knee": lambda: [f"{np.ceil(KNEE):.0f}"],
    "one sequence": lambda: at(SHORT, 1),
    "32 sequences": lambda: at(SHORT, 32),
    "256 sequences": lambda: at(SHORT, 256),
    "the knee": lambda: at(SHORT, np.ceil(KNEE)),
    "twice the knee": lambda: [at(SHORT, 2 * np.ceil(KNEE))[0]],
    "KV floor": lambda: [format_usd(roofline.usd_per_mtok(parts(1.0, LONG)[2], 1.0, HOURLY))],
    "KV over compute": lambda: [f"{LONG / BALANCE:.1f}"],
    "within a tenth": lambda: [f"{roofline.batch_within(0.1, W, LONG * KV):.0f}"],
    "MFU ceilings": lambda: [f"{BALANCE / LONG:.1%}", f"{1 / (1 + LONG / BALANCE):.1%}"],
    "imbalance": lambda: [f"{chance_imbalance(16):.2f}", f"{chance_imbalance(256):.2f}"],
    "attention": lambda: [
        f"{parity(name) / 1e3:.1f}" for name in ("llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b", "deepseek-v3")
    ],
}


def backing_tests():
    return {name for name in globals() if name.startswith("test_") and "page" not in name}


@pytest.mark.parametrize("language", PAGES)
def test_page_names_every_test_and_no_other(language):
    named = set(re.findall(r"`(test_\w+)`", PAGES[language].read_text(encoding="utf-8")))
    assert named == backing_tests()


@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize("language", PAGES)
def test_page_has_the_figures_that_the_code_gives(language, figure):
    page = PAGES[language].read_text(encoding="utf-8")
    for text in FIGURES[figure]():
        assert re.search(rf"(?<![\d.]){re.escape(text)}(?!\d)", page), text


@pytest.mark.parametrize("language", PAGES)
def test_page_shows_pictures_that_are_there(language):
    shown = re.findall(r"\((pictures/[^)]+)\)", PAGES[language].read_text(encoding="utf-8"))
    assert len(shown) >= 8
    for picture in shown:
        assert (DOCS / picture).is_file(), picture


def test_pages_have_the_same_parts():
    counts = {
        language: [
            len(re.findall(mark, page.read_text(encoding="utf-8"), re.MULTILINE))
            for mark in (r"^## ", r"^\| ", r"^!\[")
        ]
        for language, page in PAGES.items()
    }
    assert counts["en"] == counts["ko"]


@pytest.mark.slow
def test_pages_show_what_the_code_draws_now(tmp_path, monkeypatch):
    """When this fails, look at the change and run scripts/pictures."""
    loader = SourceFileLoader("pictures", str(DOCS.parent / "scripts" / "pictures"))
    pictures = module_from_spec(spec_from_loader("pictures", loader))
    loader.exec_module(pictures)
    monkeypatch.setattr(pictures, "FOLDER", tmp_path / "docs" / "pictures")
    pictures.article()
    drawn = sorted((tmp_path / "docs" / "pictures").glob("*.svg"))
    assert len(drawn) == 16
    for picture in drawn:
        assert picture.read_bytes() == (DOCS / "pictures" / picture.name).read_bytes(), picture.name
