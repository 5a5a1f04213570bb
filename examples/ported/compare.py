"""Compare each package with what it was, on a GPU: ``python compare.py``.

Needs the packages of ``after``, PyTorch, CuPy and Triton; what is missing is said and left out. The extension
of PyTorch is compiled if there is an nvcc, or else compared with the function of PyTorch itself.
"""

from __future__ import annotations

import importlib.util
import sys
import time
import types
from collections.abc import Callable, Mapping
from pathlib import Path

HERE = Path(__file__).parent


def load_before(file: str, modules: Mapping[str, object] = types.MappingProxyType({})):
    """Execute a module of ``before``, which sees `modules` as installed."""
    spec = importlib.util.spec_from_file_location(f"before_{Path(file).parent.name}", HERE / file)
    module = importlib.util.module_from_spec(spec)
    hidden = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        spec.loader.exec_module(module)
    finally:
        for name, known in hidden.items():
            sys.modules.pop(name)
            if known is not None:
                sys.modules[name] = known
    return module


def microseconds(call: Callable[[], object], synchronize: Callable[[], object]) -> float:
    """The time of one call among many, the fastest of five rounds."""
    rounds = []
    for _ in range(5):
        synchronize()
        started = time.perf_counter()
        for _ in range(200):
            call()
        synchronize()
        rounds.append((time.perf_counter() - started) / 200)
    return min(rounds) * 1e6


def show(what: str, difference: float, bound: float, before: float, after: float) -> None:
    verdict = "same" if difference == 0 else "ok" if difference <= bound else "DIFFERS"
    print(f"{what:36} {verdict:8} {difference:9.2e}   before {before:7.1f} us   after {after:7.1f} us")
    if difference > bound:
        show.failed = True


show.failed = False


def compare_gelu() -> None:
    import activations
    import torch
    from torch.utils import cpp_extension

    try:
        sources = [str(HERE / "torch_gelu" / "before" / "gelu.cu")]
        extension = cpp_extension.load("gelu_before", sources)
        before = load_before(
            "torch_gelu/before/activations/__init__.py", {"activations": types.SimpleNamespace(_C=extension)}
        ).gelu
    except Exception as error:  # there are many ways to have no compiler
        print(
            f"torch_gelu: the extension is not built ({type(error).__name__}); compared with PyTorch's gelu"
        )
        before = torch.nn.functional.gelu
    torch.manual_seed(0)
    for dtype, bound in ((torch.float32, 1e-6), (torch.float64, 1e-14), (torch.float16, 2e-3)):
        x = torch.randn(64, 1000, device="cuda", dtype=dtype)[:, ::2]  # not contiguous
        results = []
        for gelu in (before, activations.gelu):
            leaf = x.detach().clone().requires_grad_()
            y = gelu(leaf)
            y.sum().backward()
            results.append((y.detach(), leaf.grad))
        difference = max(float((a - b).abs().max()) for a, b in zip(*results, strict=True))
        x = x.contiguous()
        times = [microseconds(lambda f=f: f(x), torch.cuda.synchronize) for f in (before, activations.gelu)]
        show(f"torch_gelu {dtype}", difference, bound, *times)
    x = torch.randn(10, device="cuda", dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(activations.gelu, x)
    assert activations.gelu(x[:0]).shape == (0,)
    with torch.cuda.stream(torch.cuda.Stream()) as _:
        assert torch.isfinite(activations.gelu(x)).all()


def compare_extensions() -> None:
    """Compare the ports of larger extensions: the host's time of a call, and the GPU's of a large one."""
    import torch
    from test_extensions import load_package

    packages = {
        name: [load_package(name, "before"), load_package(name, "after")]
        for name in ("depthwise", "scanning")
    }

    def compare(what: str, bound: float, calls: list[Callable[[], object]]) -> None:
        results = [each if isinstance(each, tuple) else (each,) for each in (call() for call in calls)]
        pairs = zip(*results, strict=True)
        difference = max(float((a - b).abs().max() / a.abs().max().clamp(min=1)) for a, b in pairs)
        times = [microseconds(call, torch.cuda.synchronize) for call in calls * 2]
        show(what, difference, bound, min(times[::2]), min(times[1::2]))

    torch.manual_seed(0)
    for size, (batch, channels, length) in {"host": (1, 64, 128), "GPU": (8, 2048, 8192)}.items():
        for channel_last in (False, True):
            x = torch.randn(batch, channels, length, device="cuda", dtype=torch.float16)
            x = x.transpose(1, 2).contiguous().transpose(1, 2) if channel_last else x
            weight = torch.randn(channels, 4, device="cuda", dtype=torch.float16)
            bias = torch.randn(channels, device="cuda", dtype=torch.float16)
            layout = "channel last" if channel_last else "time last"
            functions = [package.conv for package in packages["depthwise"]]
            calls = [lambda f=f: f(x, weight, bias, True) for f in functions]
            compare(f"torch_conv {size}, {layout}", 1e-3, calls)
            x.requires_grad_()
            dy = torch.randn_like(x)
            calls = [lambda f=f: torch.autograd.grad(f(x, weight, bias, True), x, dy)[0] for f in functions]
            compare(f"torch_conv {size}, {layout}, gradient", 1e-3, calls)
    for size, (batch, channels, length) in {"host": (1, 4, 64), "GPU": (4, 1024, 8192)}.items():
        for wide in (torch.float32, torch.complex64):
            x, delta = torch.rand(2, batch, channels, length, device="cuda")
            A = -torch.rand(channels, 16, device="cuda").to(wide)
            B, C = torch.randn(2, batch, 16, length, device="cuda", dtype=wide)
            calls = [lambda f=package.scan: f(x, delta, A, B, C) for package in packages["scanning"]]
            compare(f"torch_scan {size}, {wide}", 2e-3, calls)


def compare_heat() -> None:
    import cupy
    import heat

    before = load_before("cupy_heat/before/heat/__init__.py")
    for module in (before, heat):
        module.set_conductivity(0.125)
    for dtype in ("float32", "float64"):
        plates = []
        start = cupy.random.default_rng(0).random((301, 203)).astype(dtype)
        for module in (before, heat):
            x, y = start.copy(), cupy.empty_like(start)
            for _ in range(100):
                module.step(x, y)
                x, y = y, x
            plates.append(x)
        difference = float(cupy.abs(plates[0] - plates[1]).max())
        y = cupy.empty_like(start)
        wait = cupy.cuda.Device().synchronize
        times = [microseconds(lambda m=m: m.step(start, y), wait) for m in (before, heat)]
        show(f"cupy_heat step {dtype}", difference, 0, *times)
    plate = plates[0].astype("float32")
    times = [microseconds(lambda m=m: m.hottest(plate), wait) for m in (before, heat)]
    show("cupy_heat hottest", abs(before.hottest(plate) - heat.hottest(plate)), 0, *times)
    on_host, result = start.get(), start.get()
    heat.step(on_host, result)
    heat.step(start, y)
    show("cupy_heat step, numpy arrays", float(abs(result - y.get()).max()), 0, 0, 0)


def compare_softmax() -> None:
    import rowwise
    import torch

    before = load_before("triton_softmax/before/rowwise/__init__.py")
    torch.manual_seed(0)
    for dtype, bound in ((torch.float32, 1e-6), (torch.float16, 1e-3)):
        for columns in (1024, 1000, 777, 4096):
            x = torch.randn(64, columns, device="cuda", dtype=dtype)
            difference = float((before.softmax(x) - rowwise.softmax(x)).abs().max())
            functions = (before.softmax, rowwise.softmax)
            times = [microseconds(lambda f=f: f(x), torch.cuda.synchronize) for f in functions]
            show(f"triton_softmax {dtype} {columns}", difference, bound, *times)


def main() -> int:
    for compare in (compare_gelu, compare_extensions, compare_heat, compare_softmax):
        try:
            compare()
        except ModuleNotFoundError as error:
            print(f"{compare.__name__}: not compared: {error}")
    return int(show.failed)


if __name__ == "__main__":
    sys.exit(main())
