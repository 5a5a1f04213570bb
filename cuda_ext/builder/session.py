"""One build of a project, from its configuration to the packages: everything is opened here, and closed."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cuda_ext import __version__
from cuda_ext.builder.config.resolve_variants import with_variants
from cuda_ext.builder.package.generate import Package, generate
from cuda_ext.builder.report import open_build_log
from cuda_ext.builder.scheduler.batch import Execution, Made, Work
from cuda_ext.builder.scheduler.local_pool import WorkerPool, worker_count
from cuda_ext.builder.scheduler.progress import Progress, progress_for
from cuda_ext.builder.scheduler.task import Task
from cuda_ext.builder.scheduler.timings import Durations
from cuda_ext.builder.scheduler.toolchain_keys import Toolchain
from cuda_ext.builder.sources.globs import check_overrides
from cuda_ext.builder.sources.plan import Sources, native_capabilities, plan_module
from cuda_ext.cache.dependencies import DependencyCache, FileDigests, Resolve, key_of
from cuda_ext.cache.open_store import open_store
from cuda_ext.cache.store import Store
from cuda_ext.compiler.jobs import Steps
from cuda_ext.compiler.module_plan import ModulePlan, UnitPlan, assemble, libraries, objects
from cuda_ext.errors import BuildError, ConfigError
from cuda_ext.toolchain.fatbin_packing import PackedLibrary

if TYPE_CHECKING:
    from cuda_ext.builder.config.modules import ModuleConfig
    from cuda_ext.builder.project import Project

__all__ = ["build", "compile_source", "plan"]

# Bytes of a package that the cache keeps as a whole; a larger one is put together from its libraries again.
_LARGEST_KEPT = 16 << 20


def build(
    project: Project, environ: Mapping[str, str], progress: Progress, otherwise: Path | None = None
) -> list[Package]:
    """The packages of all modules of `project`. `otherwise` serves as cache where there is none.

    Raises :class:`BuildError`: for a mistake in the configuration before the first compilation, unless it
    takes the kernels to see it, and for failed compilations with all of them.
    """
    with _session(project, environ, progress, otherwise) as session:
        return session.packages()


def compile_source(
    project: Project, source: str, environ: Mapping[str, str], progress: Progress, otherwise: Path
) -> set[str]:
    """Compile what `source` contributes to each module of `project`, so that :func:`build` finds it known.

    That is to be given the same `otherwise`. Returns the paths of all files that it depends on. Raises
    :class:`BuildError`.
    """
    with _session(project, environ, progress, otherwise) as session:
        return session.compile(source)


def plan(project: Project, environ: Mapping[str, str]) -> list[ModulePlan]:
    """What :func:`build` would make. Nothing is compiled. Raises :class:`BuildError` for what cannot work."""
    nobody = progress_for(io.StringIO(), lambda _: None)
    with _session(project, environ, nobody) as session:
        return [module.plan for module in session.plan()]


@contextmanager
def _session(
    project: Project, environ: Mapping[str, str], progress: Progress, otherwise: Path | None = None
) -> Iterator[_Session]:
    """A session, which keeps what it learned for the next one, however it ends."""
    with closing(open_store(environ, progress.message, otherwise)) as store:
        session = _Session(project, environ, progress, store)
        try:
            yield session
        finally:
            session.remember()


@dataclass(frozen=True, slots=True)
class _Planned:
    """A module with the compiler that makes it, and its libraries. ``key`` names its whole package."""

    config: ModuleConfig
    plan: ModulePlan
    toolchain: Toolchain
    works: tuple[Work, ...]
    key: str

    @classmethod
    def of(cls, config: ModuleConfig, plan: ModulePlan, toolchain: Toolchain) -> _Planned:
        # What decides on a library are its units, and how they are put together.
        groups = [plan.units] if plan.link else [(unit_plan,) for unit_plan in plan.units]
        how = (plan.name if plan.link else "", plan.compress, plan.emit)
        works = tuple(
            _work(plan, toolchain, group, how, steps)
            for group, steps in zip(groups, libraries(plan), strict=True)
        )
        beside = (plan.name, str(plan.embed), repr(config.settings.variants))
        headers = (field for item in plan.headers.items() for field in item)
        key = key_of("package", __version__, *beside, *headers, *(work.key for work in works))
        return cls(config, plan, toolchain, works, key)

    def works_of(self, source: str) -> list[Work]:
        """What can be done about `source` alone."""
        plan = self.plan
        if not plan.link:
            return [work for work in self.works if source == work.units[0].name]
        kinds = ("object", *sorted({unit_plan.unit.kind for unit_plan in plan.units}))
        return [
            _work(plan, self.toolchain, [unit_plan], kinds, steps)
            for unit_plan, steps in zip(plan.units, objects(plan), strict=True)
            if unit_plan.unit.name == source
        ]

    @property
    def resolve(self) -> Resolve:
        return self.toolchain.resolver([unit_plan.unit for unit_plan in self.plan.units])


def _work(
    plan: ModulePlan,
    toolchain: Toolchain,
    group: Sequence[UnitPlan],
    how: Sequence[str],
    steps: Steps[PackedLibrary],
) -> Work:
    units = tuple(unit_plan.unit for unit_plan in group)
    return Work(plan.name, toolchain, toolchain.key_of_library(group, *how), units, steps)


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
        project, cache = self._project, DependencyCache(self._store)
        environ, settings = self._environ, project.settings
        log = open_build_log(
            project.name,
            project.root,
            environ.get("CUDA_EXT_REPORT") or settings.report,
            environ.get("CUDA_EXT_TRACE") or settings.trace,
            worker_count(environ),
        )
        planned = self.plan()
        # Reports cover every kernel, so skip cached packages.
        known = {} if log else _known(planned, cache)
        unknown = [module for module in planned if module.key not in known]
        for module in planned:
            if module.key in known:
                self._progress.note(f"{module.plan.name}: nothing has changed since it was compiled")
        execution = Execution(cache, self._durations, self._progress, log)
        works = [work for module in unknown for work in module.works]
        results = iter(execution.run(works, self._open_executor))
        made: list[tuple[Package, list[PackedLibrary]]] = []
        failures: list[BuildError] = []
        for module in unknown:
            try:
                own = _all([next(results) for _ in module.works])
                known[module.key] = _assembled(module, own, cache)
                made.append((known[module.key], [result.library for result in own]))
            except ConfigError as error:  # it names the module itself
                failures.append(error)
            except BuildError as error:
                failures.append(type(error)(f"{module.plan.name}:\n{error}"))
        _raise(failures)
        packages = [known[module.key] for module in planned]
        for text in dict.fromkeys(text for package in packages for text in package.log):
            self._progress.message(text)
        if log:
            log.write(made)
        return packages

    def compile(self, source: str) -> set[str]:
        root = self._project.root
        works = [work for module in self.plan(source) for work in module.works_of(source)]
        execution = Execution(DependencyCache(self._store), self._durations, self._progress)
        found = {str(root / source)}
        for work, made in zip(works, _all(execution.run(works, self._open_executor)), strict=True):
            for log in made.library.log:
                self._progress.message(log)
            own = {name for unit in work.units for name in unit.headers}
            found.update(str(root / name) for name in own & made.reads)
            found |= work.toolchain.files(work.units, made.reads)
        return found

    def remember(self) -> None:
        """Keep for the next build what this one learned, however it ended."""
        self._digests.save()
        self._durations.save()
        self._store.prune()

    def plan(self, source: str | None = None) -> list[_Planned]:
        """All that decides on the modules, or on `source`. Nothing is compiled.

        The compiler is only asked what is unknown.
        """
        modules = self._project.modules
        sources = [Sources(module, self._project.root) for module in modules]
        check_overrides((m, own.names) for m, own in zip(modules, sources, strict=True))
        if source is not None:
            for own in sources:
                own.restrict(source)
        return [self._plan(module, own) for module, own in zip(modules, sources, strict=True)]

    def _plan(self, module: ModuleConfig, sources: Sources) -> _Planned:
        toolchain = self._toolchain(module)
        self._progress.note(f"{module.name}: with {toolchain.name} {toolchain.version}")
        native = native_capabilities(module, self._environ)
        plan = plan_module(module, sources, toolchain, native, self._environ)
        return _Planned.of(module, plan, toolchain)

    def _toolchain(self, module: ModuleConfig) -> Toolchain:
        settings = module.settings
        chosen = (settings.compiler, settings.nvcc, settings.launcher)
        if chosen not in self._toolchains:
            self._toolchains[chosen] = self._opened(*chosen)
        return self._toolchains[chosen]

    def _opened(self, compiler: str, nvcc: str | None, launcher: str | None) -> Toolchain:
        if compiler == "nvrtc":
            from cuda_ext.toolchain.nvrtc import Nvrtc

            return Toolchain(Nvrtc(), self._store, self._digests)
        from cuda_ext.toolchain.nvcc import find_nvcc

        configured = str(self._project.root / nvcc) if nvcc else None
        found = find_nvcc(
            *(configured, self._environ, launcher),
            check=lambda candidate: Toolchain(candidate, self._store, self._digests).version,
        )
        return Toolchain(found, self._store, self._digests)

    def _open_executor(self) -> Executor:
        if self._project.settings.executor == "dask":
            from cuda_ext.builder.scheduler.dask_cluster import dask_executor

            return dask_executor(self._environ)

        def started(task: Task) -> None:
            for job in task.jobs:
                self._progress.started(str(job))

        return WorkerPool(worker_count(self._environ), started)


def _known(planned: Sequence[_Planned], cache: DependencyCache) -> dict[str, Package]:
    """The packages that the cache has, whole, by the keys of their modules."""
    found = {module.key: cache.find(module.key, module.resolve, Package.decode) for module in planned}
    return {key: known.content for key, known in found.items() if known}


def _assembled(module: _Planned, results: Sequence[Made], cache: DependencyCache) -> Package:
    """The package of `module`, of its libraries."""
    packed = [result.library for result in results]
    log = tuple(dict.fromkeys(text for library in packed for text in library.log))
    compiled = assemble(module.plan, packed, module.toolchain.name, module.toolchain.version)
    variants, where = module.config.settings.variants, module.config.key_path("variants")
    manifest = with_variants(compiled.manifest, variants, where)
    package = generate(replace(compiled, manifest=manifest), log)
    if sum(map(len, package.files.values())) <= _LARGEST_KEPT:
        reads = {name for result in results for name in result.reads}
        cache.keep(module.key, reads, module.resolve, package.encode())
    return package


def _all(results: Sequence[Made | BuildError]) -> list[Made]:
    """The libraries. Raises :class:`BuildError` with all that failed, once each."""
    _raise([result for result in results if isinstance(result, BuildError)])
    return [result for result in results if isinstance(result, Made)]


def _raise(failures: Sequence[BuildError]) -> None:
    """Raise all `failures` as one, if there are any."""
    if failures:
        kinds = {type(failure) for failure in failures}
        kind = kinds.pop() if len(kinds) == 1 else BuildError
        raise kind("\n\n".join(dict.fromkeys(map(str, failures))))
