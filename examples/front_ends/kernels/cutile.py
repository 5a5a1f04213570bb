"""Softmax of rows and a matrix product, in cuTile Python."""

import cuda.tile as ct


@ct.kernel
def ct_softmax(out, x, N: ct.Constant[int]):
    row = ct.bid(0)
    values = ct.load(x, (row, 0), (1, N), padding_mode=ct.PaddingMode.NEG_INF)
    values = ct.astype(values, ct.float32)
    powers = ct.exp(values - ct.max(values, axis=1, keepdims=True))
    ct.store(out, (row, 0), ct.astype(powers / ct.sum(powers, axis=1, keepdims=True), out.dtype))


@ct.kernel
def ct_matmul(a, b, c, M: ct.Constant[int], N: ct.Constant[int], K: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    total = ct.full((M, N), 0, dtype=ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        left = ct.load(a, (i, k), (M, K), padding_mode=ct.PaddingMode.ZERO)
        right = ct.load(b, (k, j), (K, N), padding_mode=ct.PaddingMode.ZERO)
        total = ct.mma(left, right, total)
    ct.store(c, (i, j), ct.astype(total, c.dtype))
