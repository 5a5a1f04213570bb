"""Measure the package against Triton's JIT: ``python measure.py``, on a GPU.

Run times are those of launches in CUDA graphs, which take turns. First calls are those of five operators,
forward and backward, in new processes that have imported the library; Triton finds what it has compiled in
its cache. Medians, with the 10th and 90th percentile.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from statistics import median, quantiles
from typing import Any

import torch
from check import package, take_first_configuration
from triton_library.ops import (
    attention,
    cross_entropy,
    divergence,
    gated,
    gated_delta,
    group_norm,
    hopper,
    layer_norm,
    linear_attention,
    matmul,
    quantize,
    rms_norm,
    rotary,
    scan,
)

LAUNCHES, ROUNDS, STARTS = 10, 60, 7
HALF, BF16 = torch.float16, torch.bfloat16
Call = Callable[[], object]


def calls() -> Iterator[tuple[str, Call]]:
    """Calls of operators with one kernel each, and their sizes."""
    x, y = torch.randn(2, 8192, 4096, device="cuda", dtype=BF16).unbind()
    w = torch.randn(4096, device="cuda", dtype=BF16)
    yield "rms_norm_forward 8192 x 4096", lambda: rms_norm.rms_norm(x, w)
    yield "swiglu_forward 8192 x 4096", lambda: gated.swiglu(x, y)
    yield "geglu_forward 8192 x 4096", lambda: gated.geglu(x, y)
    xh, wh = x.to(HALF), w.to(HALF)
    yield "layer_norm_forward 8192 x 4096", lambda: layer_norm.layer_norm(xh, wh, wh)
    images, channels = torch.randn(32, 128, 64, 64, device="cuda"), torch.randn(128, device="cuda")
    yield (
        "group_norm_forward 32 x 128 x 64 x 64",
        lambda: group_norm.group_norm(images, channels, channels, 32),
    )
    logits = torch.randn(2048, 32768, device="cuda", dtype=BF16)
    labels = torch.randint(32768, (2048,), device="cuda")
    yield "cross_entropy_forward 2048 x 32768", lambda: cross_entropy.cross_entropy(logits, labels)
    p = torch.log_softmax(torch.randn(4096, 4096, device="cuda"), 1)
    yield "kl_forward 4096 x 4096", lambda: divergence.kl(p, p, is_log=True)
    q, k, v = torch.randn(3, 4, 16, 4096, 64, device="cuda", dtype=HALF).unbind()
    yield "attention_forward 4 x 16 x 4096 x 64", lambda: attention.attention(q, k, v)
    out, lse = attention.attention(q, k, v)
    yield "attention backward, three kernels", lambda: attention.attention_grad(q, q, k, v, out, lse)
    turned, few = (torch.randn(8, 4096, heads, 64, device="cuda", dtype=HALF) for heads in (8, 2))
    angles = torch.rand(4096, 32, device="cuda")
    yield "rotary 8 x 4096 x 8 x 64", lambda: rotary.rotate(turned, few, angles, angles)
    a, b = torch.randn(2, 4096, 4096, device="cuda", dtype=HALF).unbind()
    yield "matmul_activation 4096 x 4096 x 4096", lambda: matmul.linear(a, b, a[0], "silu")
    yield "matmul_tma 4096 x 4096 x 4096", lambda: hopper.tma(a, b)
    floats = torch.randn(8192, 4096, device="cuda")
    yield "quantize_rows 8192 x 4096", lambda: quantize.rows_to_int8(floats)
    rows = torch.randn(32768, 500, device="cuda")
    yield "cumulative_sum 32768 x 500", lambda: scan.cumsum(rows)
    yield "sort_rows 32768 x 500", lambda: scan.sort(rows)
    yield from recurrences()


def recurrences() -> Iterator[tuple[str, Call]]:
    q, k, v = (torch.randn(16, 4096, 2, 64, device="cuda", dtype=BF16) / 8 for _ in range(3))
    g, beta = -0.1 * torch.rand(16, 4096, 2, device="cuda"), torch.rand(16, 4096, 2, device="cuda")
    sums = gated_delta.cumulate(g, linear_attention.CHUNK)
    h, _ = linear_attention.states(k, v, sums)
    yield "chunk_states 16 x 4096 x 2 x 64", lambda: linear_attention.states(k, v, sums)
    yield "chunk_outputs 16 x 4096 x 2 x 64", lambda: linear_attention.outputs(q, k, v, h, sums)
    yield "gated delta, six kernels", lambda: gated_delta.gated_delta(q, k, v, beta, g)


def capture(call: Call) -> Any:
    """Record launches of `call` in a graph, once it has compiled or loaded its kernels."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES):
            call()
    return graph


def microseconds(graph: Any) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return 1e3 * begin.elapsed_time(end) / LAUNCHES


def show(name: str, ours: list[float], triton: list[float], unit: str) -> None:
    spread = " .. ".join(f"{each:.1f}" for each in quantiles(ours, n=10, method="inclusive")[::8])
    ratio = median(ours) / median(triton)
    package = f"package {median(ours):9.1f} {unit} ({spread})"
    print(f"{name:40} {package:44} Triton {median(triton):9.1f}  ratio {ratio:.3f}", flush=True)


def measure_run_times() -> None:
    for name, call in calls():
        graphs: dict[str, Any] = {}
        try:
            with package():
                graphs["package"] = capture(call)
            graphs["Triton"] = capture(call)
        except Exception as error:  # one kernel must not end the others
            print(f"{name:40} left out: {type(error).__name__}: {str(error).splitlines()[0]}")
            continue
        taken: dict[str, list[float]] = {who: [] for who in graphs}
        for round_ in range(ROUNDS + 3):  # the first warm up
            for who in list(graphs)[:: -1 if round_ % 2 else 1]:
                taken[who].append(microseconds(graphs[who]))
        show(name, taken["package"][3:], taken["Triton"][3:], "us")


def call_five_operators() -> None:
    """Call five operators forward and backward for the first time; print the milliseconds of each."""
    x, y, dy = torch.randn(3, 32, 1024, device="cuda", dtype=BF16).unbind()
    xh, wh = x.to(HALF), x[0].to(HALF)
    labels, ones = torch.zeros(32, device="cuda", dtype=torch.int64), torch.ones(32, device="cuda")
    q, k, v, do = torch.randn(4, 1, 4, 256, 64, device="cuda", dtype=HALF).unbind()

    def rms() -> None:
        _, rstd = rms_norm.rms_norm(x, x[0])
        rms_norm.rms_norm_grad(dy, x, x[0], rstd)

    def layer() -> None:
        _, mean, rstd = layer_norm.layer_norm(xh, wh, wh)
        layer_norm.layer_norm_grad(xh, xh, wh, mean, rstd)

    def cross() -> None:
        _, lse = cross_entropy.cross_entropy(y, labels)
        cross_entropy.cross_entropy_grad(ones, y, lse, labels)

    def gates() -> None:
        gated.swiglu(x, y)
        gated.swiglu_grad(dy, x, y)

    def heads() -> None:
        out, lse = attention.attention(q, k, v)
        attention.attention_grad(do, q, k, v, out, lse)

    def milliseconds(call: Call) -> float:
        torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - began)

    torch.empty(0, device="cuda").sum().item()
    torch.randn(8, 8, device="cuda").sum(0).to(BF16)  # what the operators use of PyTorch itself
    print(json.dumps([milliseconds(call) for call in (rms, layer, cross, gates, heads)]))


def measure_first_calls() -> None:
    samples: dict[str, list[float]] = {"--package": [], "--triton": []}
    for round_ in range(STARTS + 1):  # the first fills caches
        for who, taken in samples.items():
            done = subprocess.run(
                [sys.executable, __file__, who], capture_output=True, text=True, check=False
            )
            if done.returncode:
                print(f"first calls left out: {done.stderr[-1000:]}")
                return
            if round_:
                taken.append(sum(json.loads(done.stdout)))
    show("five operators, first calls", *samples.values(), "ms")


if __name__ == "__main__":
    take_first_configuration()
    if sys.argv[1:]:
        with package() if "--package" in sys.argv else nullcontext():
            call_five_operators()
    else:
        measure_first_calls()
        measure_run_times()
