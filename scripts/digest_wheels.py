"""Show that a change leaves the wheels of the sample projects as they are, by a digest of each file.

``record FILE`` builds the example project, the projects in ``tests/packages``, and the CMake and Meson
examples with the cuda-ext of this checkout, and writes the SHA-256 of each file in each wheel. For CMake
modules it includes the generated C++ and the Python package; for CMake projects without a wheel, the
installed files. ``compare OLD`` builds the same projects and lists the differences from the file OLD;
``compare OLD NEW`` compares two files and builds nothing. ``compare`` exits with 1 if there are differences.
A manifest that differs is also compared key by key.

Samples are copied, without files that git ignores, and built with empty caches. ``--samples`` takes them from
another checkout, so that only the changes of cuda-ext show. The script needs Python 3.11, pip, git and a C++
compiler. It installs the other tools from the package registry; ``compare OLD`` and ``record --like OLD``
install the versions recorded in OLD, since another NVRTC produces other bytes.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from _environment import ROOT, step
from digests.comparison import differences, summarize, tool_differences
from digests.samples import Builder, copy_checkout, digest_files, find_samples


def main() -> int:
    options = parse()
    if options.command == "record":
        old = read(options.like) if options.like else None
        recorded = record(options, old)
        text = json.dumps(recorded, indent=1, sort_keys=True, ensure_ascii=False)
        options.file.write_text(f"{text}\n", encoding="utf-8")
        return 0
    old = read(options.old)
    return compare(old, read(options.new) if options.new else record(options, old))


def record(options: argparse.Namespace, old: Mapping[str, Any] | None) -> dict[str, Any]:
    """Build all samples, with the tool versions of `old` if given; return what belongs into the file."""
    if options.keep and options.keep.exists():
        sys.exit(f"{options.keep}: exists already; --keep needs a new directory")
    began = time.monotonic()
    files, manifests = {}, {}
    with tempfile.TemporaryDirectory(prefix="digest_wheels-", dir=options.work) as name:
        work = Path(name).resolve()
        checkout = copy_checkout(options.checkout, work / "checkout")
        sources = copy_checkout(options.samples, work / "sources") if options.samples else checkout
        samples = list(find_samples(sources))
        step("installing cuda-ext and the build tools")
        builder = Builder.prepare(checkout, work, old["packages"] if old else {})
        for sample in samples:
            step(f"building {sample.title}")
            outputs = builder.build(sample, sources)
            files[sample.title] = digest_files(outputs)
            for path in outputs.rglob("manifest.json"):
                key = f"{sample.title}: {path.relative_to(outputs).as_posix()}"
                manifests[key] = json.loads(path.read_bytes())
            if options.keep:
                shutil.copytree(outputs, options.keep / sample.title)
        packages = builder.versions()
        compiler = builder.run("c++", "--version").splitlines()[0]
    print(f"{summarize(files)}; {time.monotonic() - began:.0f} s", flush=True)
    machine = {"Python": platform.python_version(), "machine": platform.machine(), "c++": compiler}
    return {"machine": machine, "packages": packages, "files": files, "manifests": manifests}


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> int:
    """Print what differs; return the exit status."""
    for line in tool_differences(old, new):
        print(line)
    lines = list(differences(old, new))
    print("\n".join(lines) if lines else f"equal: {summarize(new['files'])}")
    return 1 if lines else 0


def read(file: Path) -> dict[str, Any]:
    recorded: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return recorded


def parse() -> argparse.Namespace:
    build = argparse.ArgumentParser(add_help=False)
    build.add_argument(
        "--checkout", type=Path, default=ROOT, metavar="DIR", help="use the cuda-ext of the checkout in DIR"
    )
    build.add_argument(
        "--samples", type=Path, metavar="DIR", help="take the projects to build from the checkout in DIR"
    )
    build.add_argument(
        "--keep", type=Path, metavar="DIR", help="copy the outputs to DIR, to look at them with diff -r"
    )
    build.add_argument("--work", type=Path, metavar="DIR", help="put temporary files into DIR")
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", parents=[build], help="build, and write the digests to FILE")
    recording.add_argument("file", type=Path, metavar="FILE")
    recording.add_argument("--like", type=Path, metavar="OLD", help="install the versions that OLD names")
    comparing = commands.add_parser("compare", parents=[build], help="list what differs from OLD")
    comparing.add_argument("old", type=Path, metavar="OLD")
    comparing.add_argument(
        "new", type=Path, metavar="NEW", nargs="?", help="compare with this; build nothing"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
