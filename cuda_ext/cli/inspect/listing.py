"""What a terminal shows of one thing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from cuda_ext.cli.inspect.contents import Contents, Image, Kernel, KernelImage, Module, options_of
from cuda_ext.cli.inspect.tables import DIGEST, NOTHING, Row, console, count, show_groups, show_table
from cuda_ext.formats.quantities import format_count as counted
from cuda_ext.formats.quantities import format_size as size
from cuda_ext.formats.resources import Resources

__all__ = ["show_contents"]

# Kernels of a module that a terminal has room for.
_SHOWN = 100
_REASONS = {"compute": "PTX, which the driver compiles", "lto": "LTO-IR, which has to be linked"}
_HEADINGS = ("architecture", "registers", "stack", "spills", "shared", "constant", "code", "threads")


def show_contents(contents: Contents) -> None:
    """Print all of it, module by module."""
    target = console()
    kernels = sum(len(module.kernels) for module in contents.modules)
    counts = f"{counted(len(contents.modules), 'module')}, {counted(kernels, 'kernel')}"
    if not contents.has_manifests:
        counts = counted(kernels, "kernel")
    target.print(f"{contents.path}: {contents.kind}, {size(contents.size)}, {counts}", soft_wrap=True)
    for module in contents.modules:
        _show_module(target, module, contents)
    for package in sorted(
        {i.missing for m in contents.modules for unit in m.units for i in unit.images if i.missing}
    ):
        target.print(f'\nimages are compressed; "pip install {package}" to see what is in them')


def _show_module(target: Console, module: Module, contents: Contents) -> None:
    if module.compiler is not None:
        target.print()
        target.print(Text(module.name, "bold"), soft_wrap=True)
        for label, value in _facts(module, contents):
            target.print(Text(f"{label:<13}", "dim") + Text(value, "none"), soft_wrap=True)
    sources = [source for unit in module.units for source in unit.sources]
    show_table(
        target,
        ("source", "digest", "options"),
        ([s.name, s.sha256[:DIGEST] or NOTHING, " ".join(options_of(s))] for s in sources),
        numbers=0,
    )
    show_table(
        target,
        ("image of", "architecture", "format", "stored", "size"),
        (
            [unit.title if image is unit.images[0] else "", *_image_cells(image)]
            for unit in module.units
            for image in unit.images
        ),
        numbers=2,
    )
    _show_kernels(target, module.kernels)
    show_table(
        target,
        ("variable", "size"),
        ([f"__{s.space}__ {s.type} {s.name}".replace("  ", " "), size(s.size)] for s in module.symbols),
        numbers=1,
    )


def _facts(module: Module, contents: Contents) -> Iterator[tuple[str, str]]:
    if module.place != ".":
        yield "place", module.place
    yield "compiler", module.compiler or ""
    yield "compression", module.compress or ""
    if module.embedded is None:
        yield "jit", "no"
    else:
        yield "jit", f"yes, {counted(len(module.embedded), 'embedded file')}"
    share = f", {module.size / contents.size:.0%} of the {contents.kind}" if contents.size else ""
    yield "size", f"{size(module.size)}{share if module.size != contents.size else ''}"
    for name, candidates in (module.variants or {}).items():
        yield "variants", f"{name}: {candidates}"


def _image_cells(image: Image) -> tuple[str, ...]:
    form = image.kind if image.codec == "none" else f"{image.kind}, {image.codec}"
    return image.architecture, form, size(image.stored), size(image.size)


def _show_kernels(target: Console, kernels: Sequence[Kernel]) -> None:
    """Each kernel's signature, with a line for each architecture below it."""
    shown = kernels[:_SHOWN]
    if not shown:
        return
    show_groups(
        target,
        _HEADINGS,
        (
            (kernel.signature or kernel.expression, [_row(image) for image in kernel.images])
            for kernel in shown
        ),
    )
    if len(kernels) > _SHOWN:
        target.print(f"and {len(kernels) - _SHOWN:,} more; --kernel chooses, --json lists all", style="dim")
    if any(image.resources and image.resources.spilled for kernel in shown for image in kernel.images):
        target.print("spills: bytes that each thread stores + loads", style="dim")


def _row(image: KernelImage) -> Row:
    """What a kernel takes on an architecture, or why that is not known."""
    if (taken := image.resources) is None:
        reason = _REASONS.get(image.architecture.partition("_")[0], "compressed")
        return Row((image.architecture, reason), "dim", is_remark=True)
    numbers = (taken.registers, taken.stack, taken.shared, taken.constant, taken.code, taken.max_threads)
    cells = [image.architecture, *map(count, numbers)]
    cells.insert(_HEADINGS.index("spills"), _spills(taken))
    return Row(cells, "yellow" if taken.spilled else "")


def _spills(taken: Resources) -> str:
    if taken.spill_stores is None or taken.spill_loads is None:
        return NOTHING
    return f"{taken.spill_stores:,}+{taken.spill_loads:,}" if taken.spilled else "0"
