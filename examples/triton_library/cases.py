"""Operators of the library on small inputs, each with results that PyTorch computes: used by ``check.py``.

A case yields what was computed, what was expected, the largest error relative to the largest value, and
whether two runs have the same bits; atomics add in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional
from triton_library.ops import (
    adamw,
    attention,
    cross_entropy,
    divergence,
    dropout,
    embedding,
    gated,
    gated_delta,
    group_norm,
    hopper,
    layer_norm,
    linear_attention,
    matmul,
    quantize,
    reduce,
    rms_norm,
    rotary,
    scan,
)

Result = tuple[str, Any, Any, float, bool]
Case = Callable[[str], Iterator[Result]]
CASES: dict[str, Case] = {}
HALF, BF16 = torch.float16, torch.bfloat16


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def result(name: str, found: Any, expected: Any, tolerance: float = 1e-2, exact: bool = True) -> Result:
    return name, found, expected, tolerance, exact


def slopes(function: Callable[..., Any], dy: Any, *inputs: Any) -> list[Any]:
    """The gradients of `function` in `inputs`, in float64."""
    leaves = [each.detach().double().requires_grad_() for each in inputs]
    return list(torch.autograd.grad(function(*leaves), leaves, dy.double()))


@case
def rms(device: str) -> Iterator[Result]:
    for rows, columns in ((32, 1024), (30, 1000)):
        x, dy = torch.randn(2, rows, columns, device=device, dtype=BF16).unbind()
        w = torch.randn(columns, device=device, dtype=BF16)

        def plain(x: Any, w: Any) -> Any:
            return functional.rms_norm(x, x.shape[1:], eps=1e-6) * (w + 1.0)

        y, rstd = rms_norm.rms_norm(x, w, offset=1.0)
        yield result("forward", y, plain(x.double(), w.double()))
        dx, dw = rms_norm.rms_norm_grad(dy, x, w, rstd, offset=1.0)
        yield result("backward x", dx, slopes(plain, dy, x, w)[0])
        yield result("backward w", dw, slopes(plain, dy, x, w)[1])


@case
def layer(device: str) -> Iterator[Result]:
    for columns, has_bias in ((1024, True), (1000, True), (1024, False)):
        x, residual, dy = torch.randn(3, 32, columns, device=device, dtype=HALF).unbind()
        w, b = torch.randn(2, columns, device=device, dtype=HALF).unbind()

        def plain(x: Any, w: Any, b: Any) -> Any:
            return functional.layer_norm(x, x.shape[1:], w, b)

        y, mean, rstd = layer_norm.layer_norm(x, w, b if has_bias else None)
        bias = b if has_bias else torch.zeros_like(b)
        yield result("forward", y, plain(x.double(), w.double(), bias.double()))
        expected = slopes(plain, dy, x, w, bias)
        found = layer_norm.layer_norm_grad(dy, x, w, mean, rstd)
        for name, one, other in zip("xwb", found, expected, strict=True):
            yield result(f"backward {name}", one, other)
        y, _, _ = layer_norm.layer_norm(x, w, b, residual)
        yield result("residual", y, plain((x + residual).double(), w.double(), b.double()))


@case
def group(device: str) -> Iterator[Result]:
    x, dy = torch.randn(2, 2, 32, 16, 16, device=device).unbind()
    w, b = torch.randn(2, 32, device=device).unbind()

    def plain(x: Any, w: Any, b: Any) -> Any:
        return functional.group_norm(x, 8, w, b)

    y, mean, rstd = group_norm.group_norm(x, w, b, 8)
    yield result("forward", y, plain(x, w, b), 1e-5)
    activated, _, _ = group_norm.group_norm(x, w, b, 8, silu=True)
    yield result("forward with SiLU", activated, functional.silu(plain(x, w, b)), 1e-5)
    found = group_norm.group_norm_grad(dy, x, w, mean, rstd, 8)
    for name, one, other in zip("xwb", found, slopes(plain, dy, x, w, b), strict=True):
        yield result(f"backward {name}", one, other, 1e-4, name == "x")


@case
def cross(device: str) -> Iterator[Result]:
    for columns, smoothing, z_scale in ((1024, 0.0, 0.0), (1003, 0.1, 1e-4)):
        logits = torch.randn(32, columns, device=device, dtype=BF16)
        labels = torch.randint(columns, (32,), device=device)
        labels[3] = -100
        dloss = torch.rand(32, device=device)

        def plain(logits: Any, labels: Any = labels, smoothing: float = smoothing, z: float = z_scale) -> Any:
            loss = functional.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="none")
            return loss + z * (labels != -100) * torch.logsumexp(logits, 1) ** 2

        loss, lse = cross_entropy.cross_entropy(logits, labels, smoothing, z_scale)
        yield result("forward", loss, plain(logits.double()), 1e-4)
        (expected,) = slopes(plain, dloss, logits)
        found = cross_entropy.cross_entropy_grad(dloss, logits, lse, labels, smoothing, z_scale)
        yield result("backward", found.clone(), expected)
        factor = torch.full((1,), 3.0, device=device)
        yield result("scaled", cross_entropy.scale_in_place(found, factor), 3 * expected)


@case
def divergences(device: str) -> Iterator[Result]:
    x, y = torch.log_softmax(torch.randn(2, 16, 1024, device=device), 2).unbind()
    elements = torch.exp(y) * (y - x)
    yield result("kl", divergence.kl(x, y.exp()), elements.sum(1), 1e-4)
    yield result("kl of logarithms", divergence.kl(x, y, is_log=True), elements.sum(1), 1e-4)
    yield result("kl of elements", divergence.kl(x, y, "none", is_log=True), elements, 1e-4)
    yield result("kl backward", divergence.kl_grad(y, 0.5, is_log=True), -0.5 * y.exp(), 1e-5)
    yield result("kl backward", divergence.kl_grad(y.exp(), 0.5), -0.5 * y.exp(), 1e-5)

    def plain(x: Any, beta: float) -> Any:
        p, q = y.exp().to(x.dtype), x.exp()
        mixed = torch.log(beta * p + (1 - beta) * q)
        sums = beta * p * (y - mixed) + (1 - beta) * q * (x - mixed)
        return sums.sum() / len(x)

    labels = torch.zeros(16, device=device, dtype=torch.int64)
    for beta, given in ((0.5, None), (0.3, labels)):
        loss, dx = divergence.jsd(x, y, beta, given)
        yield result("jsd", loss.sum(), plain(x, beta), 1e-4)
        one = torch.ones((), device=device)
        yield result("jsd backward", dx, slopes(lambda x, b=beta: plain(x, b), one, x)[0], 1e-4)


@case
def rope(device: str) -> Iterator[Result]:
    q = torch.randn(2, 64, 8, 64, device=device, dtype=HALF)
    k = torch.randn(2, 64, 2, 64, device=device, dtype=HALF)
    angles = torch.rand(64, 32, device=device)
    cos, sin = angles.cos(), angles.sin()

    def plain(x: Any) -> Any:
        low, high = x.double().chunk(2, 3)
        c, s = cos.double()[:, None], sin.double()[:, None]
        return torch.cat((low * c - high * s, high * c + low * s), 3)

    expected = plain(q), plain(k)
    found = rotary.rotate(q.clone(), k.clone(), cos, sin)
    yield result("forward q", found[0].clone(), expected[0])
    yield result("forward k", found[1].clone(), expected[1])
    yield result("backward of forward", rotary.rotate(*found, cos, sin, backward=True)[0], q)


@case
def gates(device: str) -> Iterator[Result]:
    for columns in (1024, 1000):
        gate, up, dy = torch.randn(3, 32, columns, device=device, dtype=BF16).unbind()
        for name, forward, backward, activation in (
            ("swiglu", gated.swiglu, gated.swiglu_grad, functional.silu),
            ("geglu", gated.geglu, gated.geglu_grad, lambda x: functional.gelu(x, approximate="tanh")),
        ):

            def plain(gate: Any, up: Any, activation: Any = activation) -> Any:
                return activation(gate) * up

            yield result(name, forward(gate, up), plain(gate.double(), up.double()))
            found = backward(dy, gate.clone(), up.clone())
            for one, other in zip(found, slopes(plain, dy, gate, up), strict=True):
                yield result(f"{name} backward", one, other)


@case
def tables(device: str) -> Iterator[Result]:
    table, indices = torch.randn(50, 96, device=device), torch.randint(50, (200,), device=device)
    yield result("forward", embedding.embedding(table, indices), table[indices], 0)
    dy = torch.randn(200, 96, device=device)
    expected = torch.zeros_like(table).index_add_(0, indices, dy)
    yield result("backward", embedding.embedding_grad(dy, indices, 50), expected, 1e-5, exact=False)


@case
def drops(device: str) -> Iterator[Result]:
    x = torch.rand(10000, device=device) + 0.5
    out = dropout.drop(x, 0.25, 123)
    yield result("kept elements", out, torch.where(out != 0, x / 0.75, 0), 1e-6)
    yield result("share of zeros", (out == 0).float().mean(), torch.tensor(0.25), 0.1)
    noise = dropout.noise(65536, 7, device)
    yield result("deviation of noise", noise.std(), torch.tensor(1.0), 0.03)


@case
def optimizer(device: str) -> Iterator[Result]:
    x, dx, first = torch.randn(3, 5000, device=device).unbind()
    second = torch.rand(5000, device=device)
    m, v = 0.9 * first + 0.1 * dx, 0.999 * second + 0.001 * dx * dx
    expected = x * (1 - 1e-5) - 1e-3 * (m / (1 - 0.9**3)) / ((v / (1 - 0.999**3)).sqrt() + 1e-8)
    found, m_found, v_found = adamw.adamw_step(x.clone(), first.clone(), second.clone(), dx, 3)
    yield result("parameters", found, expected, 1e-4)
    yield result("first moment", m_found, m, 1e-5)
    yield result("second moment", v_found, v, 1e-5)


@case
def heads(device: str) -> Iterator[Result]:
    for rows, group, causal in ((256, 1, True), (200, 1, False), (256, 4, True)):
        q, k, v, dy = torch.randn(4, 2, 4, rows, 64, device=device, dtype=HALF).unbind()
        k, v = k[:, : 4 // group].contiguous(), v[:, : 4 // group].contiguous()

        def plain(q: Any, k: Any, v: Any, causal: bool = causal) -> Any:
            return functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)

        out, lse = attention.attention(q, k, v, causal)
        yield result("forward", out, plain(q.double(), k.double(), v.double()))
        if group == 1:
            found = attention.attention_grad(dy, q, k, v, out, lse, causal)
            for name, one, other in zip("qkv", found, slopes(plain, dy, q, k, v), strict=True):
                yield result(f"backward {name}", one, other)


@case
def products(device: str) -> Iterator[Result]:
    for m, n, k in ((256, 256, 128), (200, 144, 100)):
        a = torch.randn(m, k, device=device, dtype=HALF)
        b = torch.randn(k, n, device=device, dtype=HALF)
        bias = torch.randn(n, device=device, dtype=HALF)
        wanted = a.double() @ b.double()
        yield result("plain", matmul.linear(a, b), wanted)
        yield result("bias, ReLU", matmul.linear(a, b, bias, "relu"), (wanted + bias).relu())
        yield result("bias, SiLU", matmul.linear(a, b, bias, "silu"), functional.silu(wanted + bias))
        yield result("split along K", matmul.split_k(a, b), wanted, 1e-3, exact=False)


@case
def grouped_products(device: str) -> Iterator[Result]:
    a = torch.randn(256, 96, device=device, dtype=HALF)
    b = torch.randn(3, 96, 128, device=device, dtype=HALF)
    ends = torch.tensor([64, 192, 256], device=device, dtype=torch.int32)
    parts = [x.double() @ y.double() for x, y in zip(a.split([64, 128, 64]), b, strict=True)]
    yield result("descriptors of the kernel", matmul.grouped(a, b, ends), torch.cat(parts))


@case
def described_products(device: str) -> Iterator[Result]:
    a, b = torch.randn(2, 256, 256, device=device, dtype=HALF).unbind()
    yield result("descriptors of the host", hopper.tma(a, b), a.double() @ b.double())


@case
def bytes_(device: str) -> Iterator[Result]:
    a, b = torch.randn(2, 128, 256, device=device).unbind()
    (a8, a_scales), (b8, b_scales) = quantize.rows_to_int8(a), quantize.rows_to_int8(b)
    yield result("rows in int8", a8.float() * a_scales[:, None], a)
    yield result("product", quantize.int8_matmul(a8, a_scales, b8, b_scales), a @ b.T, 2e-2)


@case
def fp8_blocks(device: str) -> Iterator[Result]:
    x = torch.randn(128, 256, device=device)
    q, scales = hopper.blocks_to_fp8(x)
    yield result("blocks in fp8", q.float() * scales.repeat_interleave(128, 1), x, 0.1)


@case
def scans(device: str) -> Iterator[Result]:
    x = torch.randn(32, 500, device=device)
    yield result("sum", scan.cumsum(x), x.double().cumsum(1), 1e-5)
    yield result("reverse sum", scan.cumsum(x, True), x.double().flip(1).cumsum(1).flip(1), 1e-5)
    highest, where = torch.cummax(x, 1)
    yield result("maximum", scan.cummax(x)[0], highest, 0)
    yield result("place of the maximum", scan.cummax(x)[1], where, 0)
    decay, y = torch.rand(2, 100, 64, device=device), torch.randn(2, 100, 64, device=device)
    state, steps = torch.zeros(2, 64, device=device, dtype=torch.float64), []
    for t in range(100):
        state = decay[:, t] * state + y[:, t]
        steps.append(state)
    yield result("recurrence", scan.recur(decay, y), torch.stack(steps, 1), 1e-5)


@case
def orders(device: str) -> Iterator[Result]:
    x = torch.rand(16, 500, device=device) + 0.01
    yield result("ascending", scan.sort(x), x.sort(1)[0], 0)
    yield result("descending", scan.sort(x, True), x.sort(1, descending=True)[0], 0)
    values, places = torch.topk(x, 8, 1)
    found = scan.topk(x, 8)
    yield result("largest", found[0], values, 0)
    yield result("places of the largest", found[1], places, 0)


@case
def reductions(device: str) -> Iterator[Result]:
    x = torch.randn(32, 1000, device=device)
    places, best = reduce.argmax(x)
    yield result("place of the maximum", places, x.argmax(1), 0)
    yield result("maximum", best, x.amax(1), 0)
    numbers = torch.randint(16, (5000,), device=device, dtype=torch.int32)
    yield result("histogram", reduce.count(numbers, 16), torch.bincount(numbers, minlength=16), 0)
    yield result("norm", reduce.norm(x), x.norm(), 1e-5)


def steps_of(q: Any, k: Any, v: Any, g: Any, scale: float, beta: Any = None) -> tuple[Any, Any]:
    """Linear attention, or the delta rule with `beta`, one step after the other; and the last state."""
    state = torch.zeros(k.shape[0], k.shape[2], k.shape[3], v.shape[3], device=k.device, dtype=torch.float64)
    outputs = []
    for t in range(k.shape[1]):
        state = state * g[:, t].double().exp()[:, :, None, None]
        key, value = k[:, t].double(), v[:, t].double()
        if beta is not None:
            value = (value - torch.einsum("bhk,bhkv->bhv", key, state)) * beta[:, t].double()[:, :, None]
        state = state + key[..., None] * value[:, :, None, :]
        outputs.append(scale * torch.einsum("bhk,bhkv->bhv", q[:, t].double(), state))
    return torch.stack(outputs, 1), state


@case
def linear(device: str) -> Iterator[Result]:
    for time in (256, 200):
        q, k, v, do = torch.randn(4, 2, time, 2, 64, device=device, dtype=BF16).unbind()
        g = -0.1 * torch.rand(2, time, 2, device=device)
        sums = gated_delta.cumulate(g, linear_attention.CHUNK)
        expected, last = steps_of(q, k, v, g, 0.125)
        yield result("outputs", linear_attention.linear_attention(q, k, v, sums, 0.125), expected, 2e-2)
        yield result("last state", linear_attention.states(k, v, sums)[1], last, 2e-2)
        yield result("recurrent", linear_attention.recurrent(q, k, v, g, 0.125), expected)
        found = linear_attention.linear_attention_grad(do, q, k, v, sums, 0.125)
        wanted = slopes(lambda q, k, v, g=g: steps_of(q, k, v, g, 0.125)[0], do, q, k, v)
        for name, one, other in zip("qkv", found, wanted, strict=True):
            yield result(f"backward {name}", one, other, 2e-2)
    without, _ = steps_of(q, k, v, torch.zeros_like(g), 0.125)
    yield result("without decay", linear_attention.linear_attention(q, k, v, None, 0.125), without, 2e-2)
    bounds = torch.tensor([0, 80, 200], device=device, dtype=torch.int32)
    parts = [steps_of(*(x[:1, i:j] for x in (q, k, v, g)), 1.0)[0] for i, j in ((0, 80), (80, 200))]
    packed = linear_attention.recurrent(*(x[:1].contiguous() for x in (q, k, v, g)), 1.0, bounds)
    yield result("sequences of two lengths", packed, torch.cat(parts, 1))


@case
def delta(device: str) -> Iterator[Result]:
    for time in (128, 100):
        q, k, v = torch.randn(3, 2, time, 2, 64, device=device, dtype=BF16).unbind()
        q, k = (functional.normalize(each.float(), dim=3).to(BF16) for each in (q, k))
        g, beta = -0.1 * torch.rand(2, time, 2, device=device), torch.rand(2, time, 2, device=device)
        expected, last = steps_of(q, k, v, g, 1.0, beta)
        found = gated_delta.gated_delta(q, k, v, beta, g)
        yield result("outputs", found[0], expected, 3e-2)
        yield result("last state", found[1], last, 3e-2)
        recurrent = gated_delta.recurrent(q, k, v, beta, g, norm=True)
        yield result("recurrent", recurrent, expected, 2e-2)
    start = torch.zeros_like(last, dtype=torch.float32)
    yield result("from a state", gated_delta.gated_delta(q, k, v, beta, g, 1.0, start)[0], expected, 3e-2)
    backward = g.split(32, 1)
    sums = torch.cat([each.flip(1).cumsum(1).flip(1) for each in backward], 1)
    yield result("reverse sums", gated_delta.cumulate(g, reverse=True), sums, 1e-5)
