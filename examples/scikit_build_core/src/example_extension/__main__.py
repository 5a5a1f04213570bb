"""``python -m example_extension``: list the kernels, and compare their results with numpy."""

import sys

import cuda_ext

from . import _core, kernels


def main() -> int:
    print(cuda_ext.describe(kernels))
    print(f"\nThe extension module holds them too: {', '.join(_core.kernels())}\n")
    if not cuda_ext.gpu_available():
        print("There is no GPU here: nothing was launched.")
        return 0
    from .comparison import compare  # deferred, since it imports numpy

    comparisons = list(compare(1_000_000))
    for c in comparisons:
        verdict = "ok" if c.is_right else "WRONG"
        print(f"{c.kernel:16} from {c.language:8} {verdict:6} error {c.error:.1e}, allowed {c.tolerance:.1e}")
    return 0 if all(c.is_right for c in comparisons) else 1


if __name__ == "__main__":
    sys.exit(main())
