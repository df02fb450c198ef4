"""Catalogue of accelerators: its facts against their sources, the traps, the look-up, and files of one's own."""

import csv
import datetime as dt
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchline import accelerator
from batchline.accelerator import FORMATS, Accelerator, catalogue, names, resolve
from batchline.errors import ConfigError, InputError, MissingFactError, UnknownNameError

ENTRIES = catalogue()


def ids(entry):
    return entry.name


def test_more_than_fifty_entries_each_with_source_date_and_generation():
    assert len(ENTRIES) >= 50
    assert [entry.name for entry in ENTRIES] == names()
    for entry in ENTRIES:
        assert entry.vendor, entry.name
        assert entry.generation, entry.name
        assert len(entry.source) > 15, entry.name
        assert dt.date.fromisoformat(entry.date) <= dt.date(2026, 11, 30), entry.name


def test_no_two_entries_share_a_name():
    owner = {}
    for entry in ENTRIES:
        for name in {accelerator._key(name) for name in (entry.name, entry.label, *entry.aliases)}:
            assert owner.setdefault(name, entry.name) == entry.name, name


# The look-up.


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("h100", "h100-sxm"),
        ("H100-SXM", "h100-sxm"),
        ("h100 sxm5", "h100-sxm"),
        ("H100_PCIe", "h100-pcie"),
        ("h100-nvl", "h100-nvl"),
        ("h200", "h200-sxm"),
        ("b200", "b200"),
        ("gb200", "gb200"),
        ("GB300-NVL72", "gb300"),
        ("mi300x", "mi300x"),
        ("AMD Instinct MI355X", "mi355x"),
        ("4090", "rtx-4090"),
        ("rtx-4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("m3-ultra", "m3-ultra"),
        ("Apple M2 Ultra", "m2-ultra"),
        ("v5e", "tpu-v5e"),
        ("tpu-v5e", "tpu-v5e"),
        ("l40s", "l40s"),
        ("a100", "a100-80gb"),
        ("a100-40gb", "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-80gb-pcie"),
        ("h20", "h20"),
        ("h800", "h800-sxm"),
        ("dgx spark", "gb10"),
        ("trn2", "trainium2"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
    ],
)
def test_what_people_type(typed, name):
    assert Accelerator.load(typed).name == name


@given(st.sampled_from([name for entry in ENTRIES for name in (entry.name, entry.label, *entry.aliases)]), st.data())
def test_case_spaces_and_dashes_do_not_matter(name, data):
    pieces = accelerator.re.findall(r"[a-z]+|[0-9]+", name.casefold())
    joints = [data.draw(st.sampled_from(["", " ", "-", "_"])) for _ in pieces]
    changed = "".join(
        data.draw(st.sampled_from([piece, piece.upper()])) + joint for piece, joint in zip(pieces, joints, strict=True)
    )
    if accelerator._key(changed) == accelerator._key(name):  # a joint after a vendor's name starts a word of its own
        assert resolve(changed) == resolve(name)
    assert resolve(name.upper()) == resolve(name.replace("-", " ")) == resolve(name)


def test_the_names_in_the_public_measurements(shared):
    seen = set()
    for path in sorted((shared / "measured").glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            seen |= {row["hw"] for row in csv.DictReader(file) if "hw" in row}
    unknown = set()
    for name in seen:
        try:
            resolve(name)
        except UnknownNameError:
            unknown.add(name)
    # no dense rates and no memory bandwidth were found for the SN40L; the power-capped rows are computed, not measured
    assert unknown == {"SambaNova SN40L", "H100-SXM5-80GB (power capped)"}
    assert resolve("H100-SXM5-80GB") == "h100-sxm"
    assert resolve("A100-SXM4-40GB") == "a100-40gb"


def test_an_unknown_name_shows_the_closest():
    with pytest.raises(UnknownNameError) as caught:
        Accelerator.load("h10")
    assert "h100-sxm" in caught.value.closest
    assert "batchline list accelerators" in caught.value.hint


# Facts.


def test_the_facts_are_those_of_the_public_catalogue(shared):
    with (shared / "catalog" / "accelerators.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    columns = {
        "mem_gb": lambda entry: entry.memory / 1e9,
        "mem_bw_tbs": lambda entry: entry.bandwidth / 1e12,
        "bf16_dense_tflops": lambda entry: entry.flops.get("bf16", 0) / 1e12,
        "fp8_dense_tflops": lambda entry: entry.flops.get("fp8", 0) / 1e12,
        "int8_dense_tops": lambda entry: entry.flops.get("int8", 0) / 1e12,
        "fp4_dense_tflops": lambda entry: entry.flops.get("fp4", 0) / 1e12,
        "intra_node_link_gbs_per_gpu_unidirectional": lambda entry: (entry.link_bandwidth or 0) / 1e9,
        "scale_up_domain": lambda entry: entry.scale_up_domain or 0,
        "tdp_w": lambda entry: entry.tdp or 0,
    }
    different = set()
    del rows["EPYC 9754 (12x DDR5-4800)"]  # a CPU: its memory is a matter of configuration; docs/accelerators.md has it
    for name, row in rows.items():
        entry = Accelerator.load(name)
        for column, read in columns.items():
            if read(entry) != pytest.approx(float(row[column] or 0), rel=1e-9):
                different.add((entry.name, column))
    assert different == {
        ("gb300", "mem_gb"),  # 288 as marketed; the 278 there is what nvidia-smi shows, in GiB
        ("m3-ultra", "mem_gb"),  # blank there; Apple sells it with up to 512 GB
        ("h100-nvl", "bf16_dense_tflops"),  # blank there; half of the datasheet's rate with sparsity, by torchtitan
        ("h100-nvl", "fp8_dense_tflops"),
        ("h100-nvl", "int8_dense_tops"),
        ("m2-ultra", "bf16_dense_tflops"),  # Apple does state one, for all 76 cores
        ("rtx-5090", "fp8_dense_tflops"),  # with fp32 accumulation, as for all other GeForce rates
    }


@pytest.mark.parametrize(
    ("name", "mebibytes"),
    [("l40s", 46068), ("gb200", 189471), ("gb300", 284208), ("b300", 275040), ("rtx-pro-6000", 97887)],
)
def test_visible_memory_by_nvidia_smi(name, mebibytes):
    entry = Accelerator.load(name)
    assert entry.memory_visible == mebibytes * 2**20
    assert entry.usable_memory() == mebibytes * 2**20


def test_visible_memory_of_the_h100_is_that_of_public_vllm_logs(shared):
    assert Accelerator.load("h100").usable_memory() / 2**30 == pytest.approx(79.18, abs=0.005)
    text = (shared / "cases.json").read_text(encoding="utf-8")
    assert "79.18 GiB visible" in text
    assert "RTX 3090 (23.58 GiB)" in text
    assert Accelerator.load("3090").usable_memory() / 2**30 == pytest.approx(23.58, abs=0.005)


def test_blank_stays_blank():
    assert Accelerator.load("m3-ultra").flops == {}
    assert Accelerator.load("gb10").flops == {"fp4": 500e12}
    assert Accelerator.load("a10g").memory_visible is None
    assert Accelerator.load("h20").tdp is None


# Worked numbers C09 and C10: time to read the whole memory, and FLOP/s over bytes/s at two bytes a parameter.


@pytest.mark.parametrize(
    ("name", "milliseconds"),
    [("a100", 39.2), ("h100", 23.9), ("h200", 29.4), ("v5e", 19.5), ("tpu-v4", 26.7), ("mi300x", 36.2)],
)
def test_drain_time(name, milliseconds):
    entry = Accelerator.load(name)
    assert 1e3 * entry.memory / entry.bandwidth == pytest.approx(milliseconds, rel=0.005)


@pytest.mark.parametrize(
    ("name", "sequences"), [("a100", 153), ("h100", 295), ("h200", 206), ("v5e", 240), ("tpu-v4", 229)]
)
def test_ridge(name, sequences):
    entry = Accelerator.load(name)
    assert entry.flops_for("bf16") / entry.bandwidth == pytest.approx(sequences, rel=0.005)


# Trap 1: rates with 2:4 sparsity.


@pytest.mark.parametrize("entry", ENTRIES, ids=ids)
def test_the_ratios_of_the_formats_are_those_of_dense_rates(entry):
    bf16 = entry.flops.get("bf16")
    if bf16:
        assert entry.flops.get("fp8", 0) <= 4.4 * bf16
        assert entry.flops.get("fp4", 0) <= 8.8 * bf16
    if (
        entry.vendor == "NVIDIA"
        and entry.generation in {"hopper", "ada", "blackwell"}
        and {"bf16", "fp8"} <= set(entry.flops)
    ):
        assert entry.flops["fp8"] / entry.flops["bf16"] == pytest.approx(2, rel=0.03)


@pytest.mark.parametrize(
    ("name", "number_format", "sparse"),
    [
        ("h100", "bf16", 1979e12),
        ("h100", "fp8", 3958e12),
        ("l4", "fp8", 485e12),
        ("l40s", "fp8", 1466e12),
        ("b200", "bf16", 4500e12),
        ("rtx-5090", "fp4", 3352e12),
        ("mi355x", "fp4", 20100e12),
    ],
)
def test_the_sparse_rate_of_a_data_sheet_is_neither_stored_nor_accepted(name, number_format, sparse):
    entry = Accelerator.load(name)
    assert entry.flops[number_format] == pytest.approx(sparse / 2, rel=0.005)
    with pytest.raises(InputError, match="sparsity"):
        entry.override(flops={number_format: sparse})
    with pytest.raises(InputError, match="sparsity"):
        Accelerator.custom(bandwidth=entry.bandwidth, memory=entry.memory, flops={number_format: sparse})


def test_one_sparse_rate_among_dense_ones_is_refused():
    with pytest.raises(InputError, match="2:4 sparsity"):
        Accelerator.custom(bandwidth=3e12, memory=80e9, flops={"bf16": 800e12, "fp8": 3600e12})


# Trap 2: accumulation in fp16 or fp32.


@pytest.mark.parametrize(("name", "bf16", "fp8"), [("4090", 165.2, 330.3), ("5090", 209.5, 419.2)])
def test_geforce_rates_are_those_with_fp32_accumulation(name, bf16, fp8):
    entry = Accelerator.load(name)
    assert entry.flops["bf16"] == pytest.approx(bf16 * 1e12)
    assert entry.flops["fp8"] == pytest.approx(fp8 * 1e12)


# Trap 3: int8 on Blackwell Ultra.


@pytest.mark.parametrize("name", ["b300", "gb300"])
def test_int8_collapsed_on_blackwell_ultra(name):
    entry = Accelerator.load(name)
    assert entry.generation == "blackwell-ultra"
    assert entry.flops["int8"] < entry.flops["fp8"] / 25


# Trap 4: GB and GiB.


@pytest.mark.parametrize("entry", ENTRIES, ids=ids)
def test_visible_memory_lies_between_gb_and_gib(entry):
    if entry.memory_visible is None:
        assert entry.usable_memory() == entry.memory
    else:
        # cards with error correction in the memory (A10) show a little less than the marketed GB
        assert 0.99 * entry.memory <= entry.memory_visible <= entry.memory / 1e9 * 2**30 * (1 + 1e-9)


# Trap 5: direction of links, and the share that reaches one peer.


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [
        ("a100", 300),  # "600 GB/s"
        ("h100", 450),  # "900 GB/s"
        ("h800", 200),  # "400 GB/s"
        ("b200", 900),  # "1.8 TB/s"
        ("v5e", 200),  # bidirectional 400
        ("v6e", 400),  # bidirectional 800
        ("ironwood", 600),  # bidirectional 1200
        ("trn2", 640),  # 1.28 TB/s
        ("mi300x", 448),
    ],
)
def test_links_are_counted_in_one_direction(name, gigabytes):
    assert Accelerator.load(name).link_bandwidth == pytest.approx(gigabytes * 1e9)


@pytest.mark.parametrize(
    ("name", "gigabytes"), [("mi300x", 64), ("mi325x", 64), ("mi355x", 76.5), ("h100", 450), ("b200", 900), ("v4", 45)]
)
def test_bandwidth_to_one_peer(name, gigabytes):
    assert Accelerator.load(name).peer_bandwidth == pytest.approx(gigabytes * 1e9)


def test_a_full_mesh_of_seven_links():
    for name in ("mi300x", "mi325x", "mi350x", "mi355x"):
        entry = Accelerator.load(name)
        assert entry.link_bandwidth == pytest.approx(7 * entry.peer_bandwidth)


@pytest.mark.parametrize("entry", ENTRIES, ids=ids)
def test_no_peer_gets_more_than_all_links_carry(entry):
    if entry.peer_bandwidth is not None and entry.link_bandwidth is not None:
        assert entry.peer_bandwidth <= entry.link_bandwidth


# Rates.


def test_fp16_multiplies_at_the_rate_of_bf16():
    entry = Accelerator.load("h100")
    assert entry.flops_for("fp16") == entry.flops_for("bf16") == 989e12


def test_a_rate_that_is_not_known_is_an_error_with_a_way_out():
    with pytest.raises(MissingFactError) as caught:
        Accelerator.load("m3-ultra").flops_for("bf16")
    assert "Apple M3 Ultra" in caught.value.problem
    assert "--flops" in caught.value.hint
    with pytest.raises(MissingFactError, match="Known rates: bf16, int8"):
        Accelerator.load("a100").flops_for("fp8")
    with pytest.raises(UnknownNameError, match="number format"):
        Accelerator.load("a100").flops_for("fp6")


# Numbers by hand.


def test_override_changes_only_what_is_given_and_says_so():
    entry = Accelerator.load("h100")
    changed = entry.override(bandwidth=3e12, memory=64e9)
    assert (changed.bandwidth, changed.usable_memory(), changed.flops) == (3e12, 64e9, entry.flops)
    assert changed.source.endswith("bandwidth and memory given by hand")
    assert entry.override() is entry
    assert entry.override(flops=500e12).flops == dict.fromkeys(FORMATS, 500e12)
    assert entry.override(flops={"fp8": 1500e12}).flops["bf16"] == 989e12


def test_custom_holds_what_is_given_and_nothing_else():
    made = Accelerator.custom(bandwidth=2e12, memory=96e9, flops={"bf16": 400e12}, name="mine")
    assert (made.name, made.label, made.bandwidth, made.usable_memory()) == ("mine", "mine", 2e12, 96e9)
    assert made.flops == {"bf16": 400e12}
    assert made.link_bandwidth is None
    with pytest.raises(MissingFactError):
        Accelerator.custom(bandwidth=2e12, memory=96e9).flops_for("bf16")


@pytest.mark.parametrize(
    "wrong",
    [
        {"bandwidth": 3.35},
        {"bandwidth": 3350},
        {"memory": 80},
        {"memory": -80e9},
        {"memory": float("nan")},
        {"bandwidth": float("inf")},
        {"flops": 989},
        {"flops": 0},
        {"flops": {"bf16": 0}},
    ],
)
def test_numbers_that_no_device_has_are_refused(wrong):
    with pytest.raises(InputError, match="Write the unit"):
        Accelerator.custom(**{"bandwidth": 3e12, "memory": 80e9, "flops": 900e12, **wrong})


def test_a_rate_for_a_format_that_has_none_is_refused():
    with pytest.raises(UnknownNameError, match="number format 'fp32'"):
        Accelerator.custom(bandwidth=3e12, memory=80e9, flops={"fp32": 60e12})


# A file of one's own.

FILE = """
name = "mychip"
label = "My chip"
generation = "hopper"
memory = "96GB"
memory_visible = "88.2 GiB"
bandwidth = "4TB/s"
link_bandwidth = "450GB/s"
peer_bandwidth = 64e9
scale_up_domain = 8
tdp = "700W"
source = "data sheet of 2026-10"
[flops]
bf16 = "500TFLOPS"
fp8 = 1e15
"""


def write(folder, text, name="mychip.toml"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_of_ones_own(tmp_path):
    made = Accelerator.load(write(tmp_path, FILE))
    assert (made.name, made.label, made.generation) == ("mychip", "My chip", "hopper")
    assert (made.memory, made.bandwidth, made.tdp) == (96e9, 4e12, 700)
    assert made.usable_memory() == pytest.approx(88.2 * 2**30)
    assert made.flops == {"bf16": 500e12, "fp8": 1e15}
    assert (made.link_bandwidth, made.peer_bandwidth, made.scale_up_domain) == (450e9, 64e9, 8)
    assert Accelerator.load(str(tmp_path / "mychip.toml")) == made


def test_a_short_file_takes_its_name_from_the_path(tmp_path):
    made = Accelerator.load(write(tmp_path, 'memory = "24GB"\nbandwidth = "460.8GB/s"\n', "epyc.toml"))
    assert (made.name, made.label, made.source, made.flops) == ("epyc", "epyc", "epyc.toml", {})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('memory = "96GB"', "", "memory is missing."),
        ('memory = "96GB"', 'memory = "96 bananas"', "memory: '96 bananas': 'bananas' is no unit of a size."),
        ('bandwidth = "4TB/s"', 'bandwidth = "4TB"', "bandwidth: '4TB': 'TB' is no unit of a bandwidth."),
        ('bandwidth = "4TB/s"', "bandwidth = true", "bandwidth: True is no quantity."),
        ('tdp = "700W"', 'tdp = "700 horses"', "tdp: '700 horses' is not a power."),
        ('bf16 = "500TFLOPS"', 'bf16 = "fast"', "flops.bf16: 'fast' is not a rate."),
        ('bf16 = "500TFLOPS"', 'fp32 = "60TFLOPS"', "flops.fp32 is no key of an accelerator."),
        ('label = "My chip"', 'colour = "green"', "colour is no key of an accelerator."),
        ("scale_up_domain = 8", 'scale_up_domain = "many"', "scale_up_domain: Input should be a valid integer"),
    ],
)
def test_a_wrong_key_is_named(tmp_path, old, new, message):
    assert old in FILE
    path = write(tmp_path, FILE.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        Accelerator.load(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('memory = "96GB"', "memory = 96", "Write the unit"),
        ("scale_up_domain = 8", "scale_up_domain = 0", "scale_up_domain"),
        ("fp8 = 1e15", "fp8 = 4e15", "which no dense rate is"),
        ('memory = "96GB"\nmemory_visible = "88.2 GiB"\nbandwidth = "4TB/s"', "", None),
    ],
)
def test_a_value_that_no_device_has_is_refused(tmp_path, old, new, message):
    if message is None:
        new = 'memory = "80GB"\nbandwidth = "3.35TB/s"'
        text = FILE.replace(old, new).replace("500TFLOPS", "1979TFLOPS").replace("fp8 = 1e15", 'fp8 = "3958TFLOPS"')
        message = "bf16 rate of H100 SXM 80 GB with 2:4 sparsity"
    else:
        text = FILE.replace(old, new)
    with pytest.raises(InputError, match=message):
        Accelerator.load(write(tmp_path, text))


def test_a_file_that_is_none(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        Accelerator.load(tmp_path / "absent.toml")
    with pytest.raises(ConfigError, match="is not TOML"):
        Accelerator.load(write(tmp_path, "memory = 80GB\n"))
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="UTF-8"):
        Accelerator.load(binary)


def test_the_example_in_the_documentation(tmp_path):
    text = (Path(__file__).parents[1] / "docs" / "accelerators.md").read_text(encoding="utf-8")
    example = text.split("```toml\n")[1].split("```")[0]
    made = Accelerator.load(write(tmp_path, example, "epyc.toml"))
    assert (made.name, made.bandwidth, made.memory, made.tdp) == ("epyc", 460.8e9, 768e9, 360)


# The house.


def test_entries_are_shared_frozen_hashable_and_travel_to_other_processes():
    entry = Accelerator.load("h100")
    assert Accelerator.load("H100 SXM") is entry
    assert len({entry, Accelerator.load("h200")}) == 2
    assert pickle.loads(pickle.dumps(entry)) == entry  # noqa: S301 - our own bytes
    with pytest.raises(AttributeError):
        entry.memory = 1


def test_nothing_heavy_is_imported():
    code = (
        "import sys; from batchline.accelerator import Accelerator; Accelerator.load('h100');"
        "print(sorted({'numpy', 'pandas', 'pydantic', 'scipy', 'tomllib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
