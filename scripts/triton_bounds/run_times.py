"""The run time of kernels in CUDA graphs: ours, and Triton's own with the same configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from triton_bounds.launches import import_sources

LAUNCHES = 20  # in each graph


def measure(kernels: Any, rounds: int) -> dict[str, dict[str, list[float]]]:
    """The microseconds of a launch by the kernel and who compiled it, in turns."""
    import torch

    samples: dict[str, dict[str, list[float]]] = {}
    for name, ours, triton in _pairs(kernels, import_sources()):
        try:
            graphs = {"cuda_ext": _capture(ours), "Triton": _capture(triton)}
        except Exception as error:  # one kernel must not end the others
            print(f"left out: {name}: {error}".partition("\n")[0])
            continue
        taken: dict[str, list[float]] = {who: [] for who in graphs}
        for round_ in range(rounds + 3):  # the first warm up
            for who, graph in graphs.items():
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                graph.replay()
                end.record()
                end.synchronize()
                if round_ >= 3:
                    taken[who].append(1e3 * begin.elapsed_time(end) / LAUNCHES)
        samples[name] = taken
    return samples


def _capture(launch: Callable[[], object]) -> Any:
    import torch

    launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES):
            launch()
    return graph


def _pairs(kernels: Any, sources: Any) -> Iterator[tuple[str, Callable[[], object], Callable[[], object]]]:
    import torch

    for dtype, spelled in ((torch.float16, "fp16"), (torch.float32, "fp32")):
        x = torch.randn(8192, 4096, device="cuda", dtype=dtype)
        out = torch.empty_like(x)
        softmax = sources.softmax.softmax
        yield (
            f"softmax {spelled}, 8192 x 4096",
            lambda o=out, x=x: kernels.softmax(o, x, 4096, 4096, 1.0, BLOCK=4096, grid=8192),
            lambda o=out, x=x, f=softmax: f[(8192,)](o, x, 4096, 4096, 1.0, BLOCK=4096, num_warps=8),
        )
        a, b = torch.randn(2, 2048, 2048, device="cuda", dtype=dtype).unbind()
        c = torch.empty_like(a)
        matmul = sources.matmul.matmul
        options = {"BM": 128, "BN": 128, "BK": 32, "num_warps": 8, "num_stages": 3}
        yield (
            f"matmul {spelled}, 2048 x 2048 x 2048",
            lambda a=a, b=b, c=c: kernels.matmul(a, b, c, 2048, 2048, 2048, grid=256),
            lambda a=a, b=b, c=c, f=matmul, o=options: f[(256,)](a, b, c, 2048, 2048, 2048, **o),
        )
        q, k, v = torch.randn(3, 16, 2048, 64, device="cuda", dtype=dtype).unbind()
        result, attention = torch.empty_like(q), sources.attention.attention
        arguments = result, q, k, v, 2048, 0.125
        yield (
            f"attention {spelled}, 16 x 2048 x 64, causal",
            lambda a=arguments: kernels.attention(*a, CAUSAL=True, HEAD=64, grid=(32, 16)),
            lambda a=arguments, f=attention: f[(32, 16)](*a, CAUSAL=True, HEAD=64),
        )
