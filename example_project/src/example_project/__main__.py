"""``python -m example_project``: list the kernels, and compare their results with numpy."""

import sys
from types import ModuleType

import cuda_ext

from . import kernels, scan

IMAGES_PER_LINE = 8  # limits lines to 100 columns


def print_table(rows: list[list[str]], left: int) -> None:
    """Print aligned columns: the first `left` columns flush left, the others flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:left], widths[:left], strict=True)]
        cells += [cell.rjust(width) for cell, width in zip(row[left:], widths[left:], strict=True)]
        print(("    " + "  ".join(cells)).rstrip())


def print_module(module: ModuleType) -> tuple[int, int]:
    """Print the contents of a module; return the numbers of kernels and images."""
    description = cuda_ext.describe(module)
    print(f"{description.name}\n  kernels")
    for kernel in description.kernels:
        print(f"    {kernel.signature}")
    if description.symbols:
        print("  symbols")
        print_table([[s.name, s.type, f"{s.size} bytes"] for s in description.symbols], left=2)

    sizes = {
        unit.source: {image.architecture: f"{image.size / 1024:.1f}" for image in unit.images}
        for unit in description.units
    }
    architectures = list(dict.fromkeys(name for images in sizes.values() for name in images))
    for start in range(0, len(architectures), IMAGES_PER_LINE):
        names = architectures[start : start + IMAGES_PER_LINE]
        rows = [
            [source, *(images.get(name, "") for name in names)]
            for source, images in sizes.items()
            if not images.keys().isdisjoint(names)
        ]
        print("  images, in KiB")
        print_table([["", *names], *rows], left=1)
    print()
    return len(description.kernels), sum(map(len, sizes.values()))


def compare() -> bool:
    """Launch every kernel, print its error against numpy; return whether all are within tolerance."""
    from .cases import cases  # deferred, since it imports numpy
    from .device_array import compute_capability

    rows = [["kernel", "", "error", "allowed"]]
    for case in cases(300, 500):
        if case.compute_capability in (None, compute_capability()):
            error = case.error()
            result = "ok" if error <= case.tolerance else "WRONG"
            rows.append([case.kernel, result, f"{error:.1e}", f"{case.tolerance:.1e}"])
        else:
            rows.append([case.kernel, "not for this GPU", "", ""])
    print("against numpy")
    print_table(rows, left=2)
    return all(result != "WRONG" for _, result, _, _ in rows)


def main() -> int:
    counts = [print_module(module) for module in (kernels, scan)]
    if not cuda_ext.gpu_available():
        kernel_count, image_count = map(sum, zip(*counts, strict=True))
        print(
            f"No GPU here: {kernel_count} kernels in {image_count} images were found in the "
            "package, none was launched."
        )
        return 0
    try:
        return 0 if compare() else 1
    except cuda_ext.errors.DriverError as error:
        print(error)
        return 1


if __name__ == "__main__":
    sys.exit(main())
