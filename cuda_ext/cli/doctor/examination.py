"""All that is looked at, in the order in which it is told. Whatever is found, it is a finding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from cuda_ext.cli.doctor import cache, compilers, environment, gpus, installation, modules, project
from cuda_ext.cli.doctor.finding import Finding, Section, note, problem
from cuda_ext.cli.installed import InstalledModule, installed_modules, named_modules
from cuda_ext.errors import CudaExtError

__all__ = ["examine"]


def examine(names: Sequence[str]) -> Iterator[Section]:
    """All of this machine; where `names` names modules or packages, those and the GPUs alone."""
    found = gpus.find_gpus()
    if names:
        yield _section("Driver and GPUs", lambda: gpus.findings(found))
        yield _section("Modules", lambda: _named(names, found))
        return
    yield _section("Installation", installation.findings)
    yield _section("Tool chain", lambda: compilers.findings(found, project.is_here()))
    if project.is_here():
        yield _section("This project", project.findings)
    yield _section("Driver and GPUs", lambda: gpus.findings(found))
    yield _section("Cache", cache.findings)
    yield _section("Environment", environment.findings)
    yield _section("Modules", lambda: _all(installed_modules(), found))


def _section(title: str, findings: Callable[[], Iterable[Finding]]) -> Section:
    """The findings, as far as they come: nothing that is wrong here may hide the rest."""
    found: list[Finding] = []
    try:
        found.extend(findings())
    except (Exception, SystemExit) as error:
        said = str(error) if isinstance(error, CudaExtError | OSError) else repr(error)
        remedy = "mend that, or report it with what cuda-ext doctor --json says"
        found.append(problem(title.lower(), f"not all could be looked at: {said}", remedy))
    return Section(title, tuple(found))


def _all(found: Sequence[InstalledModule], machine: gpus.Gpus) -> Iterator[Finding]:
    yield from modules.findings(found, machine, is_thorough=False)
    if not found:
        yield note("none", "no installed package has kernels", "install one, or build one: cuda-ext init")


def _named(names: Sequence[str], machine: gpus.Gpus) -> Iterator[Finding]:
    for name in names:
        found, remedy = named_modules(name)
        if found:
            yield from modules.findings(found, machine, is_thorough=True)
        else:
            yield problem(name, "there is no such module of kernels", remedy)
