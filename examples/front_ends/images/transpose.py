"""Compile transpose for the GPU of the first argument: python images/transpose.py sm_90"""

import os
import sys
from pathlib import Path

os.environ |= {"CUTE_DSL_ARCH": sys.argv[1], "CUTE_DSL_KEEP_CUBIN": "1"}

import cutlass
from cutlass import cute, memory
from cutlass.cute.runtime import make_ptr

TILE, ROWS = 32, 8


@cute.kernel
def transpose(out: cute.Pointer, x: cute.Pointer, rows: cutlass.Int32, columns: cutlass.Int32):
    tile = memory.SmemAllocator().allocate_tensor(
        cutlass.Float32, cute.make_layout((TILE, TILE), stride=(TILE + 1, 1))
    )
    source = cute.make_tensor(x, cute.make_layout((rows, columns), stride=(columns, 1)))
    target = cute.make_tensor(out, cute.make_layout((columns, rows), stride=(rows, 1)))
    tx, ty, _ = cute.arch.thread_idx()
    bx, by, _ = cute.arch.block_idx()
    for step in cutlass.range_constexpr(0, TILE, ROWS):
        i, j = by * TILE + ty + step, bx * TILE + tx
        if i < rows and j < columns:
            tile[ty + step, tx] = source[i, j]
    cute.arch.sync_threads()
    for step in cutlass.range_constexpr(0, TILE, ROWS):
        i, j = bx * TILE + ty + step, by * TILE + tx
        if i < columns and j < rows:
            target[i, j] = tile[tx, ty + step]


@cute.jit
def launch(out: cute.Pointer, x: cute.Pointer, rows: cutlass.Int32, columns: cutlass.Int32):
    transpose(out, x, rows, columns).launch(grid=[1, 1, 1], block=[TILE, ROWS, 1])


pointer = make_ptr(cutlass.Float32, 0, cute.AddressSpace.gmem)
compiled = cute.compile(launch, pointer, pointer, cutlass.Int32(1), cutlass.Int32(1))
print(*compiled.kernel_info)
Path(f"images/transpose.{sys.argv[1]}.cubin").write_bytes(compiled.__cubin__)
