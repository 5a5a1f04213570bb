"""Compile one of several shares of the 24 images with Triton: ``compile_alone.py SOURCE NUMBER COUNT``."""

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
images = itertools.product(("fp16", "fp32"), (1024, 4096), (True, False), (80, 90, 100))
for dtype, block, is_hinted, target in itertools.islice(images, number, None, count):
    signature = {
        "out": f"*{dtype}",
        "x": f"*{dtype}",
        "stride": "i32",
        "n_cols": "i32",
        "scale": "fp32",
        "BLOCK": "constexpr",
    }
    hints = {(i,): [["tt.divisibility", 16]] for i in range(4)} if is_hinted else {}
    source = ASTSource(module.softmax, signature, {(5,): block}, hints)
    triton.compile(source, target=GPUTarget("cuda", target, 32))
