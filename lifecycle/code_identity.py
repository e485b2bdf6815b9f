"""Which code decides a step: what its entries import, without comments, with tables and package versions.

The code of a step is the import closure of its entries (ENTRIES): imports in functions count, those for type checkers
do not. Of each module its tokens count, of a table (catalogue.toml) the values that decide (sources.py); of other
people's packages, also of those that a use case imports, the version, or the sources where no distribution has them.
Other files of a use case's folder (a vocabulary that model.py reads) count by their bytes, but for declarations, whose
values are in the identity, and texts for people. What frames a step, shows it, brings bytes or starts processes is left
out by name (LEFT_OUT). The closure is read off the source, so an import that cannot be read off it would be missed: the
worker tells at its end which of our modules it has, and one outside the closure is an error (`refuse_unhashed`).

All sources are read, and one is parsed only where its bytes were not before: `kept` names the file that remembers.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from trainworthy.lifecycle.errors import WorkerError
from trainworthy.lifecycle.identity import python_sources, sha256_file, sha256_files, sha256_json
from trainworthy.lifecycle.protocol.jobs import (
    AnyJob,
    DiagnoseJob,
    FunctionsJob,
    PackJob,
    PredictJob,
    PreflightJob,
    QuickJob,
    ReplayJob,
    ServingJob,
    TrainJob,
    VerifyJob,
)
from trainworthy.lifecycle.protocol.records import STAGES, Step
from trainworthy.lifecycle.sources import Source, Sources
from trainworthy.lifecycle.spec.benchmark import SLICE_FILES

PRODUCT = Path(__file__).resolve().parent.parent
OURS = "trainworthy"
# The name of trainworthy.lifecycle before, which use cases and models may import by.
EARLIER = "lifecycle"
PACKAGES = ("assets", "expectations", "lifecycle", "pipeline", "resources")
WORKER = f"{OURS}.lifecycle.worker"
_TRAIN, _PREFLIGHT = f"{OURS}.lifecycle.engine.train", f"{OURS}.lifecycle.engine.preflight.run"
_DIAGNOSE = f"{OURS}.lifecycle.engine.substitution.diagnose"
_PREDICT, REPLAY = f"{OURS}.lifecycle.predict", f"{OURS}.lifecycle.engine.incidents.replay"
_SERVING = f"{OURS}.lifecycle.serving.turns"
# Where each kind of job begins in the worker.
ENTRY_OF_JOB: Mapping[type, str] = {
    TrainJob: _TRAIN,
    PreflightJob: _PREFLIGHT,
    DiagnoseJob: _DIAGNOSE,
    PredictJob: _PREDICT,
    ServingJob: _SERVING,
    VerifyJob: _PREDICT,
    FunctionsJob: f"{OURS}.lifecycle.engine.preflight.functions",
    QuickJob: f"{OURS}.lifecycle.engine.preflight.quick",
    ReplayJob: REPLAY,
    PackJob: f"{OURS}.lifecycle.engine.incidents.portable",
}
# Where each step begins: its own file in Dagster's process, and its jobs in the worker.
ENTRIES: Mapping[Step, tuple[str, ...]] = {
    "dataset": (f"{OURS}.assets.dataset",),
    "snapshot": (f"{OURS}.assets.snapshot",),
    "preflight": (f"{OURS}.assets.preflight", WORKER, _PREFLIGHT),
    **{stage: (f"{OURS}.assets.training", WORKER, _TRAIN, _DIAGNOSE) for stage in STAGES},
    "evaluation": (f"{OURS}.assets.evaluation", WORKER, _PREDICT),
    "promotion": (f"{OURS}.assets.promotion", WORKER, _PREDICT, _SERVING, _TRAIN),
}
# Nothing of a use case runs in them.
WITHOUT_USE_CASE: tuple[Step, ...] = ("dataset", "snapshot")
# It calls the entry that the job names; the others are no part of what a job does.
DISPATCHERS = (WORKER,)
# Changes no result: the frame around a step, what shows it, what starts the worker, stores, fetches (what is fetched is
# held against its hash) and the command line.
LEFT_OUT = (
    *(f"{OURS}.assets.{name}" for name in ("step", "step_run", "declare")),
    *(f"{OURS}.assets.{name}" for name in ("announce", "ci", "freshness", "metadata", "mirror")),
    f"{OURS}.assets.output", f"{OURS}.assets.stopped", f"{OURS}.assets.track", f"{OURS}.assets.training_alerts",
    f"{OURS}.lifecycle.report", f"{OURS}.resources", f"{OURS}.pipeline",
)  # fmt: skip
# Packages whose version decides no number: the frame, what shows, what reads the machine, and what reads declarations,
# whose values are in the identity as they were read.
NOT_DECIDING = frozenset(
    {"dagster", "dagster_pipes", "jsonschema", "mlflow", "psutil", "pydantic", "setproctitle", "tqdm", "yaml"}
)
# What a package computes with, where nobody imports that by name.
COMES_WITH: Mapping[str, tuple[str, ...]] = {
    "pandas": ("numpy", "pyarrow"), "sklearn": ("numpy", "scipy"), "torch": ("numpy",),
}  # fmt: skip
DISTRIBUTIONS: Mapping[str, str] = {
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "pytorch_lightning": "pytorch-lightning",
}
# Files of a use case's folder that no training reads: its declarations, and by their ending texts for people.
DECLARATIONS = frozenset({"use_case.yaml", "contract.yaml", "first_model.yaml", "baseline.yaml"})
FOR_PEOPLE = frozenset({".ipynb", ".md", ".rst"})
# The file that remembers what was parsed, below the state folder.
KEPT = ("code", "sources.json")
_VERSION = re.compile(r"^Version: *(\S+) *$", re.MULTILINE)


@dataclass(frozen=True)
class Code:
    """What decides a step: sources of ours and values of tables by sha256, and versions of packages."""

    modules: Mapping[str, str]
    tables: Mapping[str, str]
    packages: Mapping[str, str]

    @functools.cached_property
    def sha256(self) -> str:
        """Hash of all of it, and of Python's version."""
        import platform

        parts = {"modules": dict(self.modules), "tables": dict(self.tables), "packages": dict(self.packages)}
        return sha256_json({**parts, "python": platform.python_version()})


class CodeOnDisk:
    """The product's sources as they lie there at one moment; `kept` is the file that remembers what was parsed."""

    def __init__(self, kept: Path | None = None) -> None:
        self._files, self._read = _product_files(), Sources(kept)
        self._own: dict[Path, _OwnCode] = {}
        self._tables: dict[Path, dict[str, str]] = {}
        self._uses: dict[str, tuple[Source, list[str]]] = {}
        self._with_parents = functools.cache(functools.partial(_with_parents, files=self._files))
        self._codes: dict[frozenset[str], Code] = {}

    def step(self, use_case_folder: Path, step: Step) -> str:
        """Hash of what decides the step: the use case's Python and data files, and of ours what the step uses."""
        if (own := self._own.get(use_case_folder)) is None:
            own = self._own[use_case_folder] = _OwnCode(use_case_folder, self._read)
        if step in WITHOUT_USE_CASE:
            read, ours = {"packages": {}, "beside": sha256_files({})}, ENTRIES[step]
        else:
            read, ours = own.read, (*ENTRIES[step], *own.of_ours)
        parts = {"use_case": own.sources_sha256, "ours": self.of(ours).sha256, **read}
        self._read.keep()
        return sha256_json(parts)

    def of(self, entries: Iterable[str]) -> Code:
        """The import closure of modules of ours."""
        key = frozenset(entries)
        if key not in self._codes:
            self._codes[key] = self._closure(key)
        return self._codes[key]

    def _closure(self, entries: Iterable[str]) -> Code:
        sources: dict[str, Source] = {}
        waiting = [name for entry in entries for name in self._with_parents(entry)]
        while waiting:
            name = waiting.pop()
            if name not in sources and not _left_out(name):
                sources[name], used = self._used_by(name)
                waiting += used
        tables = self._tables_beside(self._files[name] for name in sources)
        self._read.keep()
        names = {name.partition(".")[0] for source in sources.values() for name in source.imports}
        return Code(
            modules={name: source.sha256 for name, source in sorted(sources.items())},
            tables=tables,
            packages=_versions(frozenset(names)),
        )

    def modules_of(self, job: AnyJob) -> frozenset[str]:
        """Modules of ours that a worker may have loaded at the end of the job.

        A champion brings code of its own, which may use what the use case does not.
        """
        files = list(python_sources(Path(job.use_case_folder)).values())
        if isinstance(job, PredictJob | VerifyJob):
            files += python_sources(Path(job.artifact)).values()
        if isinstance(job, ServingJob):
            for artifact in (job.candidate, job.champion):
                files += python_sources(Path(artifact.path)).values()
        roots = sorted(filter(_is_ours, _imported_by(files, self._read)))
        return frozenset(self.of((WORKER, ENTRY_OF_JOB[type(job)], *roots)).modules)

    def _used_by(self, name: str) -> tuple[Source, list[str]]:
        """A module's source, and the modules of ours that it imports, each with all packages above it."""
        if name not in self._uses:
            path = self._files[name]
            package = name if path.name == "__init__.py" else name.rpartition(".")[0]
            source = self._read(path, top_only=name in DISPATCHERS, package=package)
            used = {module for imported in source.imports for module in self._with_parents(imported)}
            self._uses[name] = source, sorted(used)
        return self._uses[name]

    def _tables_beside(self, files: Iterable[Path]) -> dict[str, str]:
        """The values of each table that lies beside a module: a severity there decides as one in code does."""
        tables: dict[str, str] = {}
        for folder in sorted({path.parent for path in files}):
            if folder not in self._tables:
                self._tables[folder] = {
                    table.relative_to(PRODUCT).as_posix(): self._read.table(table)
                    for table in sorted(folder.glob("*.toml"))
                }
            tables |= self._tables[folder]
        return tables


class _OwnCode:
    """A use case's own code, read once for all its steps: its files, and what they import."""

    def __init__(self, folder: Path, read: Sources) -> None:
        self._folder, self._read_source, self._files = folder, read, python_sources(folder)

    @functools.cached_property
    def sources_sha256(self) -> str:
        """Hash of its Python files."""
        return sha256_files(self._files)

    @functools.cached_property
    def _names(self) -> frozenset[str]:
        return _imported_by(self._files.values(), self._read_source)

    @property
    def of_ours(self) -> list[str]:
        """The modules of ours that it imports."""
        return sorted(filter(_is_ours, self._names))

    @functools.cached_property
    def read(self) -> dict[str, Any]:
        """What its code uses beside ours: versions of packages, and hashes of modules around it and of its data."""
        around = self._around
        packages = _versions(frozenset(n for n in self._foreign - around.keys() if not _lies_in(self._folder, n)))
        data = data_files(self._folder)
        # Without data files the identity is that of before they counted.
        with_data = {"data": sha256_files(data)} if data else {}
        return {"packages": dict(packages), "beside": sha256_files(self._neighbours(around)), **with_data}

    @functools.cached_property
    def _foreign(self) -> frozenset[str]:
        """The packages of others that it imports."""
        return frozenset(name.partition(".")[0] for name in self._names if not _is_ours(name))

    @functools.cached_property
    def _around(self) -> dict[str, Path]:
        """Packages that the use case lies in, as use_cases, by name: only what is imported of them counts.

        Modules beside model.py are in its files.
        """
        return {
            parent.name: parent.parent
            for parent in self._folder.resolve().parents
            if parent.name in self._foreign and not _installed(parent.name)
        }

    def neighbours(self) -> dict[str, Path]:
        """Files by name of the modules around the use case that it imports."""
        return self._neighbours(self._around)

    def _neighbours(self, around: Mapping[str, Path]) -> dict[str, Path]:
        """Files by name of the modules around a use case that it imports, with what these import there."""
        files: dict[str, Path] = {}
        waiting, use_case = list(self._names), self._folder.resolve()
        while waiting:
            top, *parts = waiting.pop().split(".")
            if top not in around:
                continue
            # Of `from a.b import c` the module may be a.b.
            for length in range(len(parts) + 1):
                path = around[top].joinpath(top, *parts[:length])
                for file in (path / "__init__.py", path.with_name(f"{path.name}.py")):
                    name = file.relative_to(around[top]).as_posix()
                    if name not in files and file.is_file() and not file.is_relative_to(use_case):
                        files[name] = file
                        waiting += self._read_source(file).imports
        return files


def data_files(use_case_folder: Path) -> dict[str, Path]:
    """What a use case's code may read of its own folder, by relative name, without what is hidden.

    Files of slices are the evaluation's to read, which counts them by itself.
    """
    files = {path.relative_to(use_case_folder): path for path in use_case_folder.rglob("*") if path.is_file()}
    return {
        name.as_posix(): path
        for name, path in sorted(files.items())
        if name.suffix not in FOR_PEOPLE | {".py", ".pyc"}
        and name.parts[0] != SLICE_FILES
        and name.as_posix() not in DECLARATIONS
        and not any(part.startswith(".") or part == "__pycache__" for part in name.parts)
    }


def modules_around(use_case_folder: Path) -> tuple[Path, ...]:
    """Files outside of a use case's folder that its code imports of the packages that it lies in."""
    return tuple(_OwnCode(use_case_folder, Sources(None)).neighbours().values())


def product_sha256() -> str:
    """Hash of all our sources and tables, equal for equal ones wherever they are installed."""
    tables = [table for package in PACKAGES for table in sorted((PRODUCT / package).rglob("*.toml"))]
    return sha256_files(_product_files() | {table.relative_to(PRODUCT).as_posix(): table for table in tables})


def step_code_sha256(use_case_folder: Path, step: Step, kept: Path | None = None) -> str:
    """Hash of the code that decides a step, as it lies on disk now."""
    return CodeOnDisk(kept).step(use_case_folder, step)


def _imported_by(files: Iterable[Path], read: Sources) -> frozenset[str]:
    """The names that a use case's files import."""
    return frozenset(name for path in files for name in read(path).imports)


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] in (OURS, EARLIER)


def _lies_in(folder: Path, name: str) -> bool:
    return (folder / f"{name}.py").is_file() or (folder / name).is_dir()


def refuse_unhashed(job: AnyJob, loaded: Iterable[str] | None, covered: frozenset[str]) -> None:
    """Raises WorkerError for a module of ours that the job loaded and that no identity covers, or if it told none.

    `covered` is what `CodeOnDisk.modules_of` gave before the job began: the code may be edited meanwhile.
    """
    if loaded is None:
        fix = "run again; lifecycle/worker.py must write modules.json before its answer"
        raise WorkerError("the worker did not say which modules it loaded", value=job.out, fix=fix, exit_code=0)
    beyond = sorted(set(loaded) - covered)
    if beyond:
        raise WorkerError(
            "the worker loaded code that is not part of the step's identity, so a change of it would go unnoticed",
            value=", ".join(beyond),
            fix="import it with an import statement (one inside a function will do), or do not load it",
            exit_code=0,
        )


@functools.cache
def _left_out(name: str) -> bool:
    return any(name == left_out or name.startswith(f"{left_out}.") for left_out in LEFT_OUT)


def _with_parents(name: str, files: Mapping[str, Path]) -> list[str]:
    """The module and the packages that Python loads before it; of `from a import name` the module is a."""
    parts = name.split(".")
    if parts[0] == EARLIER:
        parts = [OURS, *parts]
    if parts[0] != OURS:
        return []
    above = (".".join(parts[:length]) for length in range(1, len(parts) + 1))
    return [part for part in above if part in files]


def _product_files() -> dict[str, Path]:
    """Every module of ours by its dotted name."""
    # A checkout has the top of the package in src; an installed one beside its packages.
    top = PRODUCT / "src" / OURS if (PRODUCT / "src" / OURS).is_dir() else PRODUCT
    modules = {OURS: top / "__init__.py", f"{OURS}.earlier_name": top / "earlier_name.py"}
    for package in PACKAGES:
        for folder, folders, names in os.walk(PRODUCT / package):
            folders[:] = [name for name in folders if name != "__pycache__"]
            here = Path(folder)
            dotted = ".".join((OURS, *here.relative_to(PRODUCT).parts))
            for name in names:
                if name.endswith(".py"):
                    modules[dotted if name == "__init__.py" else f"{dotted}.{name[:-3]}"] = here / name
    return modules


@functools.cache
def _versions(names: frozenset[str]) -> Mapping[str, str]:
    """Versions of the deciding ones of the packages, by distribution, without importing them."""
    foreign = names - NOT_DECIDING - {OURS, EARLIER} - sys.stdlib_module_names
    deciding = {also for name in foreign for also in (name, *COMES_WITH.get(name, ()))}
    versions: dict[str, str] = {}
    for name in sorted(deciding):
        versions |= _installed(name) or _others_version(name)
    return versions


def _installed(name: str) -> dict[str, str]:
    """The version of the distribution of that name; {} if there is none."""
    distribution = DISTRIBUTIONS.get(name, name.replace("_", "-"))
    try:
        return {distribution: _version(distribution)}
    except metadata.PackageNotFoundError:
        return {}


@functools.cache
def _version(name: str) -> str:
    """As `metadata.version`, which parses a whole README for it: 2 ms a package."""
    distribution = metadata.distribution(name)
    headers, _, _ = (distribution.read_text("METADATA") or "").partition("\n\n")
    return line[1] if (line := _VERSION.search(headers)) else distribution.version


def _others_version(name: str) -> dict[str, str]:
    """Versions of the distributions that have a module under another name; else the hash of its own sources."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return {name: "not installed"}
    places = [*(spec.submodule_search_locations or ()), *([spec.origin] if spec.origin else [])]
    # To read the file lists of all distributions takes half a second.
    if any("-packages" in place for place in places) and (distributions := _distributions().get(name)):
        return {distribution: _version(distribution) for distribution in sorted(set(distributions))}
    if spec.submodule_search_locations:
        folders = map(Path, spec.submodule_search_locations)
        return {name: sha256_json([sha256_files(python_sources(folder)) for folder in folders])}
    origin = Path(spec.origin) if spec.origin else None
    return {name: sha256_file(origin) if origin is not None and origin.is_file() else "built in"}


@functools.cache
def _distributions() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()
