"""Reading and printing quantities."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchline import units as u
from batchline.errors import BatchlineError, InputError, UnitError


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (u.parse_bytes, "80GB", 80e9),
        (u.parse_bytes, "141GiB", 141 * 2**30),
        (u.parse_bytes, "141 gib", 141 * 2**30),
        (u.parse_bytes, "97,887MiB", 97887 * 2**20),
        (u.parse_bandwidth, "3.35TB/s", 3.35e12),
        (u.parse_bandwidth, "900GB/s", 900e9),
        (u.parse_flops, "989TFLOPS", 989e12),
        (u.parse_flops, "1979 TOPS", 1979e12),
        (u.parse_flops, "4.5PFLOP/s", 4.5e15),
        (u.parse_duration, "40ms", 0.04),
        (u.parse_duration, "2s", 2.0),
        (u.parse_tokens, "8k", 8192),
        (u.parse_tokens, "128K", 131072),
        (u.parse_tokens, "1M", 2**20),
        (u.parse_tokens, "2335", 2335),
        (u.parse_price, "$2.5/h", 2.5),
        (u.parse_price, "2.5", 2.5),
        (u.parse_price, "$24/day", 1.0),
        (u.parse_rate, "20/s", 20.0),
        (u.parse_rate, "1200 req/min", 20.0),
        (u.parse_devices, "4xh100", (4, "h100")),
        (u.parse_devices, "8 × mi300x", (8, "mi300x")),
        (u.parse_devices, "4090", (1, "4090")),
        (u.parse_batches, "1,2,4..64", [1, 2, 4, 8, 16, 32, 64]),
    ],
)
def test_text_becomes_si(read, text, value):
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (u.parse_bytes, "80"),
        (u.parse_bytes, "80 potatoes"),
        (u.parse_bytes, "GB"),
        (u.parse_bytes, "-80GB"),
        (u.parse_bytes, "0GB"),
        (u.parse_bytes, "1e999GB"),
        (u.parse_bandwidth, "3.35TB"),
        (u.parse_bandwidth, "3.35TB/h"),
        (u.parse_flops, "989TB/s"),
        (u.parse_duration, "40"),
        (u.parse_duration, "forty ms"),
        (u.parse_duration, "12,5ms"),
        (u.parse_duration, "1,00,000ms"),
        (u.parse_tokens, "8kB"),
        (u.parse_tokens, "1.5"),
        (u.parse_tokens, "1,5k"),
        (u.parse_tokens, "-1"),
        (u.parse_price, "free"),
        (u.parse_price, "-2"),
        (u.parse_rate, "20/fortnight"),
        (u.parse_devices, ""),
        (u.parse_devices, "0xh100"),
        (u.parse_batches, "0..5"),
        (u.parse_batches, "-3"),
        (u.parse_batches, "9..3"),
        (u.parse_batches, "many"),
    ],
)
def test_nonsense_is_refused_with_a_next_step(read, text):
    with pytest.raises((UnitError, InputError)) as caught:
        read(text)
    assert str(caught.value).endswith(".")


def test_a_missing_unit_is_named():
    with pytest.raises(UnitError, match=r"'80' has no unit\..*80GB"):
        u.parse_bytes("80")


def test_gb_is_never_gib():
    assert u.parse_bytes("80GB") != u.parse_bytes("80GiB")
    assert u.format_bytes(80e9) == "80.0 GB"
    assert u.format_bytes(80 * 2**30, binary=True) == "80.0 GiB"


@given(st.floats(1, 1e15))
def test_what_is_printed_reads_back(value):
    assert u.parse_bytes(u.format_bytes(value)) == pytest.approx(value, rel=6e-3)
    assert u.parse_duration(u.format_time(value * 1e-9)) == pytest.approx(value * 1e-9, rel=6e-3)


@given(st.text(max_size=20))
def test_any_text_is_read_or_refused(text):
    readers = (u.parse_bytes, u.parse_bandwidth, u.parse_flops, u.parse_duration, u.parse_tokens, u.parse_price)
    for read in (*readers, u.parse_rate, u.parse_devices, u.parse_batches):
        with contextlib.suppress(BatchlineError):
            read(text)
