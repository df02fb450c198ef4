"""What a device holds: figures printed by engines, and laws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchline import memory
from batchline.architecture import Architecture, names
from batchline.errors import InputError

GIB = 2**30
MODELS = ["llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v3", "gpt-oss-20b", "mixtral-8x7b", "qwen3-0.6b"]
degrees = st.sampled_from([1, 2, 4, 8])


@pytest.mark.parametrize(
    ("model", "weights", "tp", "printed"),
    [
        # "Model loading took" of public vLLM logs, less the table of positions: context x 128 x 2 bytes.
        ("llama-3.1-8b", None, 1, 14.99 - 0.031),
        ("llama-3.1-8b", None, 4, 3.77 - 0.031),
        ("llama-3.1-70b", "fp8-channel", 2, 33.88 - 0.031),
        ("llama-3.1-70b", "fp8-channel", 4, 16.96 - 0.031),
        ("llama-3.1-70b", "int8", 1, 67.7229 - 0.031),
        ("qwen3-32b", None, 1, 61.03 - 0.010),
        ("qwen3-30b-a3b", None, 1, 56.88 - 0.010),
        ("mixtral-8x7b", None, 2, 43.51 - 0.008),
        ("qwen3-235b-a22b-fp8", None, 4, 55.19 - 0.010),
    ],
)
def test_weights_are_those_that_engines_print(model, weights, tp, printed):
    held = memory.weight_bytes_per_device(Architecture.load(model), weights, tp=tp)
    assert held / GIB == pytest.approx(printed, rel=0.0015)


def test_pipeline_stages_keep_embedding_and_head():
    # llm-d-planner's logs of vLLM 0.19: 7.51 GiB of two stages, 4.26 of four; 5.48 of three for Qwen3-8B.
    llama, qwen = Architecture.load("llama-3.1-8b"), Architecture.load("qwen3-8b")
    assert memory.weight_bytes_per_device(llama, pp=2) / GIB == pytest.approx(7.51 - 0.031, abs=0.01)
    assert memory.weight_bytes_per_device(llama, pp=4) / GIB == pytest.approx(4.26 - 0.031, abs=0.01)
    assert memory.weight_bytes_per_device(qwen, pp=3) / GIB == pytest.approx(5.48 - 0.010, abs=0.01)
    assert len(memory.stage_weight_bytes(llama, pp=4)) == 4


def test_a_tied_table_is_on_the_first_and_the_last_stage():
    tied = Architecture.load("qwen3-0.6b")
    assert tied.tied_embeddings
    stages = memory.stage_weight_bytes(tied, pp=2)
    assert sum(stages) - tied.weight_bytes() == pytest.approx(tied.embedding_params * 2)


def test_experts_are_rounded_up_to_whole_ones():
    assert memory.expert_copies(256, 8, 8) == 1 / 8
    assert memory.expert_copies(60, 8, 8) == 8 / 60
    assert memory.expert_copies(256, 4, 8) == 1 / 8
    assert memory.expert_copies(256, 1, 16) == 1 / 16
    with pytest.raises(InputError, match="ep 3 does not divide the 8 devices"):
        memory.expert_copies(256, 3, 8)


def test_attention_data_parallelism_copies_all_but_the_experts():
    model = Architecture.load("deepseek-v3")
    routed = model.step_weight_bytes()[1]
    rest = model.weight_bytes() - routed
    held = memory.weight_bytes_per_device(model, dp=8, ep=8)
    assert held == pytest.approx(rest + routed / 8, rel=1e-6)


def test_kv_heads_are_copied_beyond_their_number():
    model = Architecture.load("llama-3.1-8b")
    assert memory.kv_bytes_per_device(model, 1000, tp=8) == memory.kv_bytes_per_device(model, 1000, tp=16)
    assert memory.kv_shards(16, 8) == 8
    assert memory.kv_shards(4, 6) == 3  # two devices have two heads, two have one


def test_heads_stay_whole():
    # Phi-4 has 10 KV heads: on 8 devices two of them hold two, and the slowest decides.
    model = Architecture.load("phi-4")
    assert memory.kv_read_bytes_per_device(model, 1000, tp=8) == pytest.approx(model.read_bytes(1000) / 5)


@pytest.mark.parametrize("name", names())
def test_each_cache_divides_by_its_own_heads(name):
    model = Architecture.load(name)
    whole = model.read_bytes(1024)
    assert memory.kv_read_bytes_per_device(model, 1024) == pytest.approx(whole)
    for tp in (2, 4, 8, 16, 64):
        each = memory.kv_read_bytes_per_device(model, 1024, tp=tp)
        assert whole / tp <= each * (1 + 1e-12)
        assert each <= memory.kv_read_bytes_per_device(model, 1024, tp=tp // 2) * (1 + 1e-12)
        states = sum(2 * cache.state_bytes * cache.layers for cache in model.caches)
        if name.startswith("nemotron-3"):  # 64 to 256 heads of its states divide by any of these
            assert memory.kv_read_bytes_per_device(model, 0, tp=tp) == pytest.approx(states / tp)


def test_latents_are_whole_on_each_device():
    model = Architecture.load("deepseek-v3")
    assert memory.kv_bytes_per_device(model, 1000, tp=8) == memory.kv_bytes_per_device(model, 1000, tp=1) == 70272e3


@pytest.mark.parametrize(
    ("layers", "pp", "dealt"),
    [(32, 1, (32,)), (61, 4, (15, 15, 16, 15)), (62, 4, (15, 16, 16, 15)), (61, 8, (7, 7, 8, 8, 8, 8, 8, 7))],
)
def test_layers_are_dealt_from_the_back_before_the_last(layers, pp, dealt):
    assert memory.pipeline_layers(layers, pp) == dealt


def test_more_stages_than_layers_are_refused():
    with pytest.raises(InputError, match="pp 40 does not fit 32 layers"):
        memory.pipeline_layers(32, 40)


@given(layers=st.integers(1, 200), pp=st.integers(1, 200))
def test_every_layer_is_dealt(layers, pp):
    if pp <= layers:
        dealt = memory.pipeline_layers(layers, pp)
        assert sum(dealt) == layers
        assert max(dealt) - min(dealt) <= 1


@given(model=st.sampled_from(MODELS), tp=degrees, pp=st.sampled_from([1, 2, 4]), dp=st.sampled_from([1, 2]))
def test_all_devices_together_hold_at_least_the_model(model, tp, pp, dp):
    architecture = Architecture.load(model)
    stages = memory.stage_weight_bytes(architecture, tp=tp, pp=pp, dp=dp)
    assert tp * dp * sum(stages) >= architecture.weight_bytes() * (1 - 1e-9)
    assert max(stages) == memory.weight_bytes_per_device(architecture, tp=tp, pp=pp, dp=dp)


@given(model=st.sampled_from(MODELS), tp=degrees, n=st.integers(0, 100_000), more=st.integers(0, 10_000))
def test_longer_sequences_hold_no_less(model, tp, n, more):
    architecture = Architecture.load(model)
    layout = memory.kv_layout(architecture, tp=tp)
    assert layout.sequence_bytes(n + more) >= layout.sequence_bytes(n)
    for windows in ("kept", "full"):
        now = memory.kv_bytes_per_device(architecture, n, tp=tp, windows=windows)
        assert memory.kv_bytes_per_device(architecture, n + more, tp=tp, windows=windows) >= now
        assert tp * now >= architecture.stored_bytes(n) * (1 - 1e-9)


@given(model=st.sampled_from(MODELS), n=st.integers(1, 50_000), block=st.sampled_from([1, 16, 64]))
def test_blocks_hold_at_least_what_the_sequence_stores(model, n, block):
    architecture = Architecture.load(model)
    layout = memory.kv_layout(architecture, block=block, shared_pool=False)
    assert layout.sequence_bytes(n) >= architecture.stored_bytes(n) * (1 - 1e-9) - layout.block_bytes
    rounded = memory.kv_bytes_per_device(architecture, n, block=block)
    assert rounded >= architecture.stored_bytes(n) * (1 - 1e-9)


def test_arrays_go_through():
    architecture = Architecture.load("gpt-oss-20b")
    n = np.array([1.0, 100.0, 5000.0])
    layout = memory.kv_layout(architecture)
    assert [float(size) for size in layout.sequence_bytes(n)] == [layout.sequence_bytes(float(one)) for one in n]
    assert memory.kv_bytes_per_device(architecture, n).shape == (3,)
    pool = memory.KvPool.of(20e9, layout)
    assert list(pool.capacity_batch(n)) == [pool.capacity_batch(float(one)) for one in n]


class TestHybridLayouts:
    """Blocks, tokens and concurrency of vLLM logs, given the memory that they print."""

    @pytest.mark.parametrize(
        ("config", "kv_gib", "blocks", "tokens", "concurrency"),
        [
            # vLLM 0.19 on an H100, max_model_len 8,192, 8,192 tokens a step (llm-d-planner).
            ("google--gemma-2-2b", 66.47, 83770, 670160, 81.73),
            ("google--gemma-2-27b", 20.59, 7335, 58672, 7.16),
            ("google--gemma-3-4b-it", 62.51, 204817, 468144, 57.05),
            ("google--gemma-3-12b-it", 47.72, 48867, 130304, 15.88),
            ("google--gemma-3-27b-it", 19.53, 15997, 36560, 4.46),
        ],
    )
    def test_windows_share_a_pool(self, shared, config, kv_gib, blocks, tokens, concurrency):
        architecture = Architecture.load(shared / "catalog" / "configs" / f"{config}.json")
        layout = memory.kv_layout(architecture)
        pool = memory.KvPool.of(kv_gib * GIB, layout)
        assert pool.blocks == pytest.approx(blocks, rel=3e-4)  # the log rounds GiB to two digits
        exact = memory.KvPool.of(blocks * layout.block_bytes, layout)
        assert exact.tokens(8192, 8192, by_concurrency=False) == tokens
        assert exact.max_concurrency(8192, 8192) == pytest.approx(concurrency, abs=0.006)

    def test_smaller_tokens_fill_longer_blocks(self, shared):
        # Gemma-4-31B on an H200, 103.92 GiB: 1,007,303 tokens (redhat-performance/configiq#112).
        architecture = Architecture.load(shared / "catalog" / "configs" / "nvidia--Gemma-4-31B-IT-NVFP4.json")
        layout = memory.kv_layout(architecture)
        assert {group.kind: group.block for group in layout.groups} == {"full": 32, "window": 16}
        pool = memory.KvPool.of(103.92 * GIB, layout)
        assert pool.tokens(262144, 8192) == pytest.approx(1_007_303, rel=1e-4)

    def test_a_block_holds_a_state(self, shared):
        # A Qwen3.8-27B, of the sizes of Qwen3.5-27B, with 19.54 GiB: 313,650 tokens.
        architecture = Architecture.load(shared / "catalog" / "configs" / "Qwen--Qwen3.5-27B.json")
        layout = memory.kv_layout(architecture, state_blocks=2)
        assert layout.block == 784
        assert memory.KvPool.of(19.54 * GIB, layout).tokens(262144, 2048) == 313_650

    def test_windows_in_full_are_as_if_there_were_none(self):
        architecture = Architecture.load("gpt-oss-20b")
        layout = memory.kv_layout(architecture, windows="full")
        assert layout.grows_alike
        assert layout.sequence_bytes(16000) == 16000 * 24 * 2048


def test_a_pool_without_room_holds_nothing():
    layout = memory.kv_layout(Architecture.load("llama-3.1-8b"))
    pool = memory.KvPool.of(-1e9, layout)
    assert pool.blocks == pool.tokens(4096) == pool.largest_context(8192) == 0
    assert pool.capacity_batch(100) == 0


def test_the_longest_request_just_fits():
    layout = memory.kv_layout(Architecture.load("llama-3.1-8b"))
    pool = memory.KvPool.of(5 * GIB, layout)
    longest = pool.largest_context(10**6)
    assert pool.max_concurrency(longest) >= 1
    assert pool.max_concurrency(longest + 16) < 1


def test_vocabulary_is_padded_before_it_is_divided():
    assert memory.pad_vocabulary(32001) == 32064
    odd = Architecture.load("llama-2-7b")
    whole = memory.weight_bytes_per_device(odd, vocabulary_padding=1)
    assert memory.weight_bytes_per_device(odd, vocabulary_padding=64) == whole  # 32,000 is 500 x 64
    assert memory.weight_bytes_per_device(odd, vocabulary_padding=48) > whole
