"""One build of a project, from its configuration to the packages: everything is opened here, and closed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cuda_ext.build.account import Account
from cuda_ext.build.cache import Cache, FileDigests
from cuda_ext.build.durations import Durations
from cuda_ext.build.execution import Execution, Work
from cuda_ext.build.files import check_overrides
from cuda_ext.build.generate import Package, generate
from cuda_ext.build.plan import native_capabilities, plan_module
from cuda_ext.build.progress import Progress
from cuda_ext.build.task import Task
from cuda_ext.build.toolchain import Toolchain
from cuda_ext.build.workers import WorkerPool, worker_count
from cuda_ext.compiler.module import ModulePlan, assemble, libraries
from cuda_ext.compiler.packed import PackedLibrary
from cuda_ext.errors import BuildError
from cuda_ext.store import Store, open_store

if TYPE_CHECKING:
    from cuda_ext.build.config import ModuleConfig
    from cuda_ext.build.project import Project

__all__ = ["build"]


def build(project: Project, environ: Mapping[str, str], progress: Progress) -> list[Package]:
    """The packages of all modules of `project`.

    Raises :class:`BuildError`: for a mistake in the configuration before the first compilation, and for
    failed compilations with all of them.
    """
    with closing(open_store(environ, progress.message)) as store:
        session = _Session(project, environ, progress, store)
        try:
            return session.packages()
        finally:
            session.remember()


@dataclass(frozen=True, slots=True)
class _Planned:
    """A module with the compiler that makes it."""

    plan: ModulePlan
    toolchain: Toolchain

    def works(self) -> list[Work]:
        """Its libraries. What decides on one are its units, and how they are put together."""
        plan = self.plan
        groups = [plan.units] if plan.link else [(unit_plan,) for unit_plan in plan.units]
        how = (plan.name if plan.link else "", plan.compress, plan.emit)
        return [
            Work(
                plan.name,
                self.toolchain,
                self.toolchain.key_of_library(group, *how),
                self.toolchain.resolver([unit_plan.unit for unit_plan in group]),
                steps,
            )
            for group, steps in zip(groups, libraries(plan), strict=True)
        ]


class _Session:
    def __init__(
        self, project: Project, environ: Mapping[str, str], progress: Progress, store: Store
    ) -> None:
        self._project = project
        self._environ = environ
        self._progress = progress
        self._store = store
        self._digests = FileDigests(store)
        self._durations = Durations(store, tuple(module.name for module in project.modules))
        self._toolchains: dict[tuple[str | None, ...], Toolchain] = {}

    def packages(self) -> list[Package]:
        project = self._project
        account = Account(project, self._environ, worker_count(self._environ))
        check_overrides(project.modules, project.root)
        planned = [self._plan(module) for module in project.modules]
        execution = Execution(Cache(self._store), self._durations, self._progress, account.wanted)
        works = [module.works() for module in planned]
        made = execution.run([work for own in works for work in own], self._open_executor)
        packed = _grouped(planned, works, made)
        for log in dict.fromkeys(log for own in packed for library in own for log in library.log):
            self._progress.message(log)
        packages = [
            generate(assemble(module.plan, own, module.toolchain.name, module.toolchain.version))
            for module, own in zip(planned, packed, strict=True)
        ]
        account.write(execution.records, packed, packages)
        return packages

    def remember(self) -> None:
        """Keep for the next build what this one learned, however it ended."""
        self._digests.save()
        self._durations.save()
        self._store.prune()

    def _plan(self, module: ModuleConfig) -> _Planned:
        toolchain = self._toolchain(module)
        self._progress.message(f"{module.name}: with {toolchain.name} {toolchain.version}")
        native = native_capabilities(module)
        return _Planned(plan_module(module, self._project.root, toolchain, native), toolchain)

    def _toolchain(self, module: ModuleConfig) -> Toolchain:
        settings = module.settings
        chosen = (settings.compiler, settings.nvcc, settings.launcher)
        if chosen not in self._toolchains:
            self._toolchains[chosen] = self._opened(*chosen)
        return self._toolchains[chosen]

    def _opened(self, compiler: str, nvcc: str | None, launcher: str | None) -> Toolchain:
        if compiler == "nvrtc":
            from cuda_ext.compiler.nvrtc import Nvrtc

            return Toolchain(Nvrtc(), self._store, self._digests)
        from cuda_ext.compiler.nvcc import find_nvcc

        configured = str(self._project.root / nvcc) if nvcc else None
        found = find_nvcc(
            *(configured, self._environ, launcher),
            check=lambda candidate: Toolchain(candidate, self._store, self._digests).version,
        )
        return Toolchain(found, self._store, self._digests)

    def _open_executor(self) -> Executor:
        if self._project.settings.executor == "dask":
            from cuda_ext.build.distributed import dask_executor

            return dask_executor(self._environ)

        def started(task: Task) -> None:
            for job in task.jobs:
                self._progress.started(str(job))

        return WorkerPool(worker_count(self._environ), started)


def _grouped(
    planned: Sequence[_Planned], works: Sequence[Sequence[Work]], made: Sequence[PackedLibrary | BuildError]
) -> list[list[PackedLibrary]]:
    """The libraries by module. Raises :class:`BuildError` with all that failed, once each, by module."""
    results: Iterator[PackedLibrary | BuildError] = iter(made)
    grouped: list[list[PackedLibrary]] = []
    failures: list[BuildError] = []
    for module, own in zip(planned, works, strict=True):
        found = [next(results) for _ in own]
        errors = [result for result in found if isinstance(result, BuildError)]
        if errors:
            texts = dict.fromkeys(map(str, errors))
            failures.append(
                _common(errors)("\n\n".join([f"{module.plan.name}:", *texts]).replace("\n\n", "\n", 1))
            )
        grouped.append([result for result in found if isinstance(result, PackedLibrary)])
    if failures:
        raise _common(failures)("\n\n".join(map(str, failures)))
    return grouped


def _common(errors: Sequence[BuildError]) -> type[BuildError]:
    """The class of all `errors`."""
    kinds = {type(error) for error in errors}
    return kinds.pop() if len(kinds) == 1 else BuildError
