"""The format of records: what is written is read, and damage is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuda_ext.recording.records import Argument, Launch, RecordError, read_records, write_line

SOFTMAX = Launch(
    "triton",
    "rowwise.kernels",
    "device/softmax.py",
    "softmax(x: *fp16:16, n_cols: i32, BLOCK=128, bias=None, num_warps=8)",
    (Argument("x", "float16", (4, 100), (100, 1), True), Argument("n_cols", value="100")),
    (4,),
)
FILL = Launch("module", "p.kernels", "device/fill.cu", "fill", grid=(1, 2, 3), block=(32,), shared=4096)
DAMAGED = write_line(SOFTMAX._replace(instantiation="softmax(x: *fp16"))[:-1]


def test_what_is_written_is_read_in_order(tmp_path: Path) -> None:
    lines = [FILL, SOFTMAX, FILL._replace(times=7)]
    (tmp_path / "1.jsonl").write_bytes(b"".join(map(write_line, lines)))
    (tmp_path / "2.jsonl").write_bytes(write_line(FILL) + write_line(SOFTMAX._replace(times=3)))
    assert read_records(tmp_path) == [FILL._replace(times=8), SOFTMAX._replace(times=4)]


def test_a_process_that_was_killed_while_it_wrote_loses_that_launch_alone(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_bytes(write_line(FILL) + write_line(SOFTMAX)[:-1])
    assert read_records(tmp_path) == [FILL]


@pytest.mark.parametrize(
    "line",
    [b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"kind": 1}', write_line(FILL)[:-3], DAMAGED],
)
def test_damage_is_named(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "1.jsonl").write_bytes(write_line(FILL) + line + b"\n")
    with pytest.raises(RecordError, match=r"1\.jsonl:2: is not the record of a launch: .*; remove this file"):
        read_records(tmp_path)


def test_without_records_the_error_says_how_to_make_some(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="there are no records; run a program that launches kernels: cuda-"):
        read_records(tmp_path / "none")
