"""Compile one of several shares of the 256 images with Triton: ``compile_alone.py SOURCE NUMBER COUNT``."""

import importlib.util
import itertools
import os
import sys
from typing import Any

os.environ |= {"TRITON_DISABLE_LINE_INFO": "1", "TRITON_DEFAULT_FP_FUSION": "1", "TRITON_ALWAYS_COMPILE": "1"}

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

spec = importlib.util.spec_from_file_location("softmax", sys.argv[1])
assert spec
assert spec.loader
module: Any = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
number, count = map(int, sys.argv[2:])
blocks = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)
dtypes = ("fp16", "fp32")
images = itertools.product(dtypes, dtypes, blocks, (True, False), (80, 86, 90, 100))
for out, x, block, is_hinted, target in itertools.islice(images, number, None, count):
    signature = {
        "out": f"*{out}",
        "x": f"*{x}",
        "stride": "i32",
        "n_cols": "i32",
        "scale": "fp32",
        "BLOCK": "constexpr",
    }
    hints = {(i,): [["tt.divisibility", 16]] for i in range(4)} if is_hinted else {}
    source = ASTSource(module.softmax, signature, {(5,): block}, hints)
    triton.compile(source, target=GPUTarget("cuda", target, 32))
