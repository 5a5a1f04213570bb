"""The same tests of both extensions of PyTorch, before and after: ``pytest test_extensions.py`` on a GPU.

`before` is compiled by ``torch.utils.cpp_extension``, `after` has to be installed.
"""

from __future__ import annotations

import types
from collections.abc import Callable

import pytest
from compare import HERE, load_before

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

SOURCES = {
    "depthwise": ("torch_conv", ["conv.cpp", "conv_kernels.cu"]),
    "scanning": ("torch_scan", ["scan.cpp", "scan_kernels.cu"]),
}

CONVERSIONS = ["-U__CUDA_NO_HALF_CONVERSIONS__", "-U__CUDA_NO_BFLOAT16_CONVERSIONS__"]  # see setup.py


@pytest.fixture(scope="session", params=["before", "after"])
def load(request: pytest.FixtureRequest) -> Callable[[str], types.ModuleType]:
    return lambda name: load_package(name, request.param)


def load_package(name: str, state: str) -> types.ModuleType:
    if state == "after":
        return pytest.importorskip(name)
    from torch.utils import cpp_extension

    project, files = SOURCES[name]
    paths = [str(HERE / project / "before" / file) for file in files]
    extension = cpp_extension.load(f"{name}_before", paths, extra_cuda_cflags=CONVERSIONS)
    return load_before(f"{project}/before/{name}/__init__.py", {name: types.SimpleNamespace(_C=extension)})


TOLERANCES = {
    torch.float32: {"rtol": 3e-5, "atol": 3e-5},
    torch.float16: {"rtol": 3e-3, "atol": 3e-3},
    torch.bfloat16: {"rtol": 2e-2, "atol": 2e-2},
}


def make(*shape: int, dtype: torch.dtype, channel_last: bool = False) -> torch.Tensor:
    x = torch.randn(*shape, device="cuda").to(dtype)
    return x.transpose(1, 2).contiguous().transpose(1, 2) if channel_last else x


def reference_conv(x, weight, bias, silu):
    width = weight.shape[1]
    y = torch.nn.functional.conv1d(x, weight.unsqueeze(1), bias, padding=width - 1, groups=x.shape[1])
    y = y[..., : x.shape[2]]
    return torch.nn.functional.silu(y) if silu else y


@pytest.mark.parametrize("channel_last", [False, True])
@pytest.mark.parametrize("silu", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("width", [2, 3, 4])
@pytest.mark.parametrize("dtype", [*TOLERANCES], ids=str)
def test_conv(load, dtype, width, has_bias, silu, channel_last):
    conv = load("depthwise").conv
    for batch, channels, length in ((2, 130, 1), (1, 1, 17), (3, 72, 1153)):
        torch.manual_seed(length)
        x = make(batch, channels, length, dtype=dtype, channel_last=channel_last)
        weight = make(channels, width, dtype=dtype) / width
        bias = make(channels, dtype=dtype) if has_bias else None
        dy = make(batch, channels, length, dtype=dtype)
        inputs = [tensor.clone().requires_grad_() for tensor in (x, weight, bias) if tensor is not None]
        y = conv(*inputs, *([] if has_bias else [None]), silu)
        assert y.dtype == dtype
        assert y.stride() == x.stride() or 1 in x.shape
        grads = torch.autograd.grad(y, inputs, dy)
        wide = [tensor.detach().double().requires_grad_() for tensor in inputs]
        expected = reference_conv(*wide, *([] if has_bias else [None]), silu)
        torch.testing.assert_close(y, expected.to(dtype), **TOLERANCES[dtype])
        for found, right in zip(grads, torch.autograd.grad(expected, wide, dy.double()), strict=True):
            scale = max(1.0, float(right.abs().max()))
            torch.testing.assert_close(found / scale, (right / scale).to(dtype), **TOLERANCES[dtype])


def test_conv_with_other_strides(load):
    conv = load("depthwise").conv
    base = torch.randn(4, 60, 300, device="cuda")
    for x in (base[::2, 10:50:2, 5:290:3], base.transpose(0, 1)[:, :, 7:], base[:, :1]):
        weight = torch.randn(4, x.shape[1], device="cuda").T
        torch.testing.assert_close(
            conv(x, weight), reference_conv(x.double(), weight.double(), None, False).float()
        )
        assert conv(x[:, :, :0], weight).shape == (*x.shape[:2], 0)


def test_conv_in_another_stream(load):
    conv = load("depthwise").conv
    x, weight = torch.ones(1, 8, 64, device="cuda"), torch.ones(8, 2, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()) as _:
        torch.cuda._sleep(10_000_000)
        x.mul_(2)
        y = conv(x, weight)
    torch.cuda.synchronize()
    assert y[0, 0, 1] == 4


@pytest.mark.parametrize(
    "change",
    [
        lambda x, w, b: (x, w[:-1], b),
        lambda x, w, b: (x, w.double(), b),
        lambda x, w, b: (x, w, b.half()),
        lambda x, w, b: (x[0], w, b),
        lambda x, w, b: (x, w, b[:-1]),
    ],
)
def test_conv_refuses(load, change):
    arguments = torch.randn(2, 8, 32), torch.randn(8, 3), torch.randn(8)
    with pytest.raises((RuntimeError, ValueError, TypeError)):
        load("depthwise").conv(*change(*(argument.cuda() for argument in arguments)))


def reference_scan(x, delta, A, B, C, D, softplus):
    """One step after the other, in 64 bits."""
    is_complex = A.is_complex()
    wide = torch.complex128 if is_complex else torch.float64
    x, delta, A, B, C = x.double(), delta.double(), A.to(wide), B.to(wide), C.to(wide)
    if softplus:
        delta = torch.nn.functional.softplus(delta)
    h = torch.zeros(x.shape[0], *A.shape, dtype=wide, device=x.device)
    outputs = []
    for t in range(x.shape[2]):
        d = delta[:, :, t, None]
        h = torch.exp(d * A) * h + d * x[:, :, t, None] * B[:, None, :, t]
        y = (C[:, None, :, t] * h).sum(-1)
        outputs.append(2 * y.real if is_complex else y)
    y = torch.stack(outputs, -1)
    return y if D is None else y + D.double()[:, None] * x, h


@pytest.mark.parametrize("softplus", [False, True])
@pytest.mark.parametrize("has_skip", [False, True])
@pytest.mark.parametrize("states", [1, 16])
@pytest.mark.parametrize("wide", [torch.float32, torch.complex64], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_scan(load, dtype, wide, states, has_skip, softplus):
    scan = load("scanning").scan
    for batch, channels, length in ((2, 3, 5), (1, 4, 700), (2, 2, 4500)):
        torch.manual_seed(length)
        x = torch.randn(batch, channels, length, device="cuda").to(dtype)
        delta = (0.1 * torch.rand(batch, channels, length, device="cuda")).to(dtype)
        A = -torch.rand(channels, states, device="cuda").to(wide) - 0.1
        B, C = torch.randn(2, batch, states, length, device="cuda", dtype=wide)
        D = torch.randn(channels, device="cuda") if has_skip else None
        y, last = scan(x, delta, A, B, C, D, softplus)
        expected, state = reference_scan(x, delta, A, B, C, D, softplus)
        scale = float(expected.abs().max())
        tolerances = {"rtol": 0, "atol": 2e-3 if dtype == torch.float16 else 2e-4}
        torch.testing.assert_close(y.double() / scale, expected / scale, **tolerances)
        torch.testing.assert_close(last.to(state.dtype), state, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    "change",
    [
        lambda x, d, A, B, C: (x, d[:1], A, B, C),
        lambda x, d, A, B, C: (x, d.half(), A, B, C),
        lambda x, d, A, B, C: (x, d, A.to(torch.complex64), B, C),
        lambda x, d, A, B, C: (x, d, A, B[:, :-1], C),
        lambda x, d, A, B, C: (x.double(), d.double(), A, B, C),
        lambda x, d, A, B, C: (x.transpose(1, 2).contiguous().transpose(1, 2), d, A, B, C),
    ],
)
def test_scan_refuses(load, change):
    arguments = [torch.randn(shape, device="cuda") for shape in ((2, 3, 9), (2, 3, 9), (3, 4))]
    arguments += [torch.randn(2, 4, 9, device="cuda") for _ in range(2)]
    with pytest.raises((RuntimeError, ValueError, TypeError)):
        load("scanning").scan(*change(*arguments))
