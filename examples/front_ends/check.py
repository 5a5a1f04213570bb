"""Launch every kernel on this machine's GPU and compare it with PyTorch: ``python check.py``.

Each line has the kernel, the shape, whether the image is one for arguments that 16 divides, and the largest
error relative to the largest value.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections import Counter
from typing import Any

import front_ends
import torch
from front_ends import kernels

TOLERANCES = {torch.float16: 3e-3, torch.float32: 2e-3}  # products of float32 are TF32's
NAMES = {torch.float16: "fp16", torch.float32: "fp32"}
counts: Counter[str] = Counter()


def image_of(kernel: Any, *arguments: Any) -> str:
    """Return the image of `kernel` that a launch takes, as ``explain`` shows it."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        kernel.explain(*arguments)
    before, *_ = re.split(r"(?<!not )taken: ", output.getvalue())
    condition = max(
        before.rpartition("\n  if "), before.rpartition("\n  otherwise"), key=lambda part: len(part[0])
    )
    return "hinted" if "% 16" in condition[2] else "generic"


def check(name: str, shape: tuple[int, ...], image: str, found: Any, wanted: Any) -> None:
    error = float((found.float() - wanted.float()).abs().max() / wanted.float().abs().max())
    verdict = "ok" if error <= TOLERANCES[found.dtype] else "WRONG"
    counts[verdict] += 1
    counts[image] += 1
    size = " x ".join(map(str, shape))
    print(f"{name:34} {size:18} {image:8} {error:.1e}  {verdict}", flush=True)


def is_aligned(*values: Any) -> str:
    numbers = (value.data_ptr() if hasattr(value, "data_ptr") else value for value in values)
    return "hinted" if all(number % 16 == 0 for number in numbers) else "generic"


def expect(found: str, expected: str) -> str:
    return found if found == expected else f"{found}, not {expected}!"


def check_softmax(dtype: torch.dtype) -> None:
    for rows, columns, stride, offset in (
        (4, 1024, 1024, 0),
        (7, 1000, 1008, 0),
        (7, 784, 1008, 0),
        (3, 512, 1024, 1),
        (5, 4096, 4096, 0),
        (5, 3001, 4096, 0),
    ):
        memory = torch.randn(rows * stride + 16, device="cuda", dtype=dtype)
        x = memory.as_strided((rows, columns), (stride, 1), offset)
        out = torch.empty_like(memory).as_strided((rows, columns), (stride, 1), offset)
        block = 1024 if columns <= 1024 else 4096
        kernel = kernels.softmax[f"{NAMES[dtype]}, BLOCK={block}"]
        arguments = out, x, stride, columns, 1.5
        image = expect(image_of(kernel, *arguments), is_aligned(out, x, stride, columns))
        kernel(*arguments, grid=rows)
        wanted = torch.softmax(1.5 * x.float(), 1)
        check(f"softmax {NAMES[dtype]} BLOCK={block}", (rows, columns), image, out, wanted)
        simt = kernels.simt.softmax["__half" if dtype == torch.float16 else "float"]
        simt(*arguments, grid=rows, block=32)
        check(f"softmax {NAMES[dtype]} CUDA C++", (rows, columns), "-", out, wanted)


def check_layer_norm(dtype: torch.dtype) -> None:
    for rows, columns in ((4, 1024), (6, 1000), (3, 4096), (2, 33)):
        x = torch.randn(rows, columns, device="cuda", dtype=dtype)
        weight, bias = torch.randn(2, columns, device="cuda", dtype=dtype).unbind()
        for given in (bias, None):
            found = front_ends.layer_norm(x, weight, given)
            wanted = torch.nn.functional.layer_norm(
                x.float(), (columns,), weight.float(), None if given is None else given.float()
            )
            constants = "bias=None, BLOCK=4096" if given is None else "BLOCK=4096"
            kernel = kernels.layer_norm[f"{NAMES[dtype]}, {constants}"]
            arguments = [found, x, weight, columns, columns, 1e-5, *([] if given is None else [given])]
            integers = [each for each in arguments if not isinstance(each, float)]
            image = expect(image_of(kernel, *arguments), is_aligned(*integers))
            name = f"layer_norm {NAMES[dtype]}{' without bias' if given is None else ''}"
            check(name, (rows, columns), image, found, wanted)


def check_matmul(dtype: torch.dtype) -> None:
    for m, n, k in ((128, 128, 64), (100, 70, 50), (1024, 2048, 512), (2000, 1032, 100), (1, 16, 16)):
        a = torch.randn(m, k, device="cuda", dtype=dtype)
        b = torch.randn(k, n, device="cuda", dtype=dtype)
        found = front_ends.matmul(a, b)
        image = image_of(kernels.matmul[NAMES[dtype]], a, b, found, m, n, k)
        image = expect(image, is_aligned(a, b, found, m, n, k))
        check(f"matmul {NAMES[dtype]}", (m, n, k), image, found, a.double() @ b.double())


def check_matmul_tma() -> None:
    for m, n, k in ((128, 128, 64), (256, 512, 1024), (100, 72, 40), (1000, 2000, 136)):
        a = torch.randn(m, k, device="cuda", dtype=torch.float16)
        b = torch.randn(k, n, device="cuda", dtype=torch.float16)
        check("matmul_tma fp16", (m, n, k), "-", front_ends.matmul_tma(a, b), a.double() @ b.double())


def check_cutile(dtype: torch.dtype) -> None:
    for rows, columns, stride in (
        (64, 1024, 1024),
        (7, 1000, 1000),
        (33, 512, 528),
        (33, 512, 515),
        (2, 1, 8),
    ):
        x = torch.randn(rows, stride, device="cuda").to(dtype)[:, :columns]
        out = torch.empty(rows, stride, device="cuda", dtype=dtype)[:, :columns]
        kernel = kernels.ct_softmax[f"{NAMES[dtype].replace('p', '')}, N=1024"]
        image = expect(image_of(kernel, out, x), is_aligned(out, x, stride * x.element_size(), columns))
        kernels.ct_softmax(out, x, N=1024, grid=rows)
        check(f"softmax {NAMES[dtype]} cuTile", (rows, columns), image, out, torch.softmax(x.float(), 1))
    for m, n, k in ((512, 512, 512), (1024, 2048, 512), (500, 300, 260), (333, 257, 129)):
        a, b = (torch.randn(*size, device="cuda", dtype=torch.float16) for size in ((m, k), (k, n)))
        c = torch.empty(m, n, device="cuda", dtype=torch.float16)
        kernel = kernels.ct_matmul["f16, M=128, N=128, K=64"]
        image = expect(image_of(kernel, a, b, c), is_aligned(a, b, c, m, n, k))
        kernel(a, b, c, grid=(-(-m // 128), -(-n // 128)))
        check("matmul fp16 cuTile", (m, n, k), image, c, a.double() @ b.double())


def as_multiplied(x: torch.Tensor) -> torch.Tensor:
    """Round `x` as Tensor Cores do: TF32 has 10 bits of the significand of float32."""
    if x.dtype != torch.float32:
        return x.double()
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32).double()


def check_attention(dtype: torch.dtype) -> None:
    for batch, heads, rows in ((2, 4, 256), (1, 3, 200), (2, 2, 1024), (1, 1, 7)):
        q, k, v = torch.randn(3, batch, heads, rows, 64, device="cuda", dtype=dtype).unbind()
        for causal in (False, True):
            found = front_ends.attention(q, k, v, causal)
            kernel = kernels.attention[f"{NAMES[dtype]}, CAUSAL={causal}, HEAD=64, BM=64, BN=64"]
            image = image_of(kernel, found, q, k, v, rows, 64**-0.5)
            image = expect(image, is_aligned(found, q, k, v, rows))
            wanted = torch.nn.functional.scaled_dot_product_attention(
                *map(as_multiplied, (q, k, v)), is_causal=causal
            )
            name = f"attention {NAMES[dtype]}{' causal' if causal else ''}"
            check(name, (batch, heads, rows, 64), image, found, wanted)


def main() -> int:
    torch.manual_seed(0)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for dtype in TOLERANCES:
        check_softmax(dtype)
        check_layer_norm(dtype)
        check_matmul(dtype)
        check_attention(dtype)
        check_cutile(dtype)
    check_matmul_tma()
    n, x = 1000, torch.randn(1000, device="cuda")
    y = torch.ones_like(x)
    kernels.axpy(n, 2.0, x, y, threads=n)
    check("axpy float CUDA C++", (n,), "-", y, 1 + 2 * x)
    y = torch.ones_like(x)
    kernels.tile.axpy(n, 2.0, x, y, grid=1)
    check("axpy float CUDA Tile C++", (n,), "-", y, 1 + 2 * x)
    for m, n, k in ((64, 64, 32), (100, 70, 50), (1024, 2048, 512)):
        a, b = torch.randn(m, k, device="cuda").half(), torch.randn(k, n, device="cuda").half()
        c = torch.empty(m, n, device="cuda")
        kernels.tile.matmul["__half, 128, 128, 32"](m, n, k, a, b, c, grid=(-(-m // 128), -(-n // 128)))
        check("matmul fp16 CUDA Tile C++", (m, n, k), "-", c, a.double() @ b.double())
    for rows, columns in ((32, 32), (100, 333)):
        x = torch.randn(rows, columns, device="cuda")
        out = torch.empty(columns, rows, device="cuda")
        kernels.transpose(out, x, rows, columns, grid=(-(-columns // 32), -(-rows // 32)))
        check("transpose float CuTe DSL", (rows, columns), "-", out, x.T)
    print(", ".join(f"{count} {name}" for name, count in counts.items()))
    is_right = not counts["WRONG"] and not any("!" in name for name in counts)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
