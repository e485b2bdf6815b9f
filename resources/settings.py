"""Where things live: environment variables, and the folders they default to.

TRAINWORTHY_PROJECT    the project: use cases, dataset versions, settings; default the nearest folder with use_cases/,
                       from the working directory upwards
TRAINWORTHY_VAR        the state folder; default var/ of the project
TRAINWORTHY_USE_CASES  folders of use cases, separated like PATH; default use_cases/
TRAINWORTHY_DURABLE    storage that outlives this machine, for copies of checkpoints: a folder, or s3://BUCKET/PREFIX;
                       default none
TRAINWORTHY_STATE      where records and verdicts lie that several machines share: a folder, or s3://BUCKET/PREFIX;
                       default the state folder itself (docs/how-to/deploy.md#state-that-several-machines-share); a
                       bucket is also how files come and go where workers share no storage with Dagster's machine
TRAINWORTHY_DATABASE   a PostgreSQL database for the table of attempts, postgresql://USER:PASSWORD@HOST:PORT/NAME;
                       default SQLite in the state folder (docs/how-to/attempts.md)
TRAINWORTHY_RAY_ADDRESS  the dashboard of a Ray cluster for compute.launcher: ray, http://HOST:8265; no default
                       (docs/how-to/ray.md)
TRAINWORTHY_RAY_FOLDER  the folder with the project, its state folder and datasets, where nodes of that cluster do not
                       share it: files come and go by the bucket of TRAINWORTHY_STATE; default none, they share it
                       (docs/how-to/ray.md#without-a-common-storage)

Three are for compute.nodes with launcher torchrun (docs/how-to/several-processes.md#several-machines):

TRAINWORTHY_NODES         hosts of the nodes after the first, separated by commas; no default
TRAINWORTHY_NODE_COMMAND  how a command is run on one of them, default ssh -o BatchMode=yes {host}
TRAINWORTHY_NODE_ADDRESS  address of this machine by which they reach it; default the one by which it reaches the first

And two for where links lead (docs/how-to/tracking.md):

TRAINWORTHY_DAGSTER_URL   where people open Dagster's UI; default http://127.0.0.1:3000
TRAINWORTHY_MLFLOW_URL    where people open MLflow's UI; default the server of MLFLOW_TRACKING_URI, else
                          http://127.0.0.1:5000

Outside of any project it is DAGSTER_HOME, if that has use_cases/ (a service starts anywhere), else a checkout's own;
of an installed Trainworthy the working directory, where `trainworthy new` makes use_cases/.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from trainworthy.lifecycle.errors import SettingsError, did_you_mean
from trainworthy.lifecycle.provenance import PRODUCT as PRODUCT
from trainworthy.lifecycle.storage.durable.bucket import SERVER_VARIABLES, check_address, is_bucket
from trainworthy.lifecycle.storage.state import StateFolder, write_atomic

# What trainworthy is imported from: the checkout's src/, or site-packages.
IMPORTED_FROM = Path(__file__).absolute().parents[2]
PROJECT, USE_CASES, VAR = "TRAINWORTHY_PROJECT", "TRAINWORTHY_USE_CASES", "TRAINWORTHY_VAR"
# In the state folder.
OWNERS = "use_cases.txt"
DURABLE = "TRAINWORTHY_DURABLE"
STATE = "TRAINWORTHY_STATE"
DATABASE = "TRAINWORTHY_DATABASE"
RAY_ADDRESS, RAY_FOLDER = "TRAINWORTHY_RAY_ADDRESS", "TRAINWORTHY_RAY_FOLDER"
NODES, NODE_COMMAND = "TRAINWORTHY_NODES", "TRAINWORTHY_NODE_COMMAND"
NODE_ADDRESS = "TRAINWORTHY_NODE_ADDRESS"
DAGSTER_URL, MLFLOW_URL = "TRAINWORTHY_DAGSTER_URL", "TRAINWORTHY_MLFLOW_URL"


@dataclass(frozen=True)
class Settings:
    """Resolved folders; `durable` and `shared` may be addresses of object storage.

    `shared` is where records and verdicts lie, None for the state folder.
    `database` is the address of attempts as it is named, "" for SQLite; it may hold a password.
    """

    project: Path
    var: Path
    use_cases: tuple[Path, ...]
    prices: Path
    durable: str | None = None
    shared: str | None = None
    database: str = field(default="", repr=False)


def read_settings() -> Settings:
    """Settings from the environment. Raises SettingsError if the project or a folder of use cases cannot be used.

    A team's project need not have use_cases/ yet: `trainworthy new` makes it.
    """
    project = project_folder()
    refuse_own_name(project)
    named = os.environ.get(USE_CASES)
    folders = [Path(part) for part in named.split(os.pathsep) if part] if named else [project / "use_cases"]
    for folder in folders:
        if not folder.is_dir() and (named or project == PRODUCT):
            fix = f"name existing folders in {USE_CASES}"
            raise SettingsError("the folder of use cases does not exist", value=str(folder), fix=fix)
    return Settings(
        project=project,
        var=state_folder(project),
        use_cases=tuple(folder.resolve() for folder in folders),
        prices=own if (own := project / "prices.yaml").is_file() else PRODUCT / "prices.yaml",
        durable=_place(DURABLE),
        shared=_place(STATE),
        database=os.environ.get(DATABASE, ""),
    )


def project_folder() -> Path:
    """The project, resolved. Raises SettingsError if TRAINWORTHY_PROJECT names no folder."""
    here, named = Path.cwd(), os.environ.get(PROJECT)
    if named:
        if not Path(named).is_dir():
            fix = f"name an existing folder in {PROJECT}, or unset it and work inside the project"
            raise SettingsError("the folder of the project does not exist", value=named, fix=fix)
        return Path(named).resolve()
    outside = PRODUCT if (PRODUCT / "pyproject.toml").is_file() else here
    home = Path(os.environ.get("DAGSTER_HOME") or outside).resolve()
    return next((folder for folder in (here, *here.parents, home) if (folder / "use_cases").is_dir()), outside)


def own_python_path() -> str:
    """Where another process finds the Trainworthy that runs here; "" if it is installed, which needs no path."""
    return "" if IMPORTED_FROM.name in ("site-packages", "dist-packages") else str(IMPORTED_FROM)


def refuse_own_name(project: Path) -> None:
    """Raises SettingsError if the project has a package of Trainworthy's name: Python would import it instead."""
    for own in (project / "trainworthy" / "__init__.py", project / "trainworthy.py"):
        if own.is_file():
            named = own if own.name == "trainworthy.py" else own.parent
            fix = "give it another name: Python imports it in place of Trainworthy"
            raise SettingsError("the project has a package called trainworthy", value=str(named), fix=fix)


def choose_project(folder: Path) -> None:
    """Work on this project from here on, in this process and those that it starts.

    Raises SettingsError if it is no folder, or TRAINWORTHY_PROJECT names another.
    """
    if not folder.is_dir():
        fix = "name the folder with use_cases/, as Path(__file__).parent"
        raise SettingsError("the folder of the project does not exist", value=str(folder), fix=fix)
    chosen, before = folder.resolve(), project_folder()
    if os.environ.get(PROJECT) and before != chosen:
        fix = f"unset {PROJECT}, or let it name the second; each project needs a process of its own"
        raise SettingsError("two projects in one process", value=[str(before), str(chosen)], fix=fix)
    os.environ[PROJECT] = str(chosen)


def state_folder(project: Path) -> Path:
    """The state folder, resolved; it need not be there."""
    return Path(os.environ.get(VAR) or project / "var").resolve()


def resolved_variables(settings: Settings) -> dict[str, str]:
    """The settings as variables for a command in the project's folder, from where a relative path leads elsewhere."""
    named = {PROJECT: str(settings.project), VAR: str(settings.var)}
    named[USE_CASES] = os.pathsep.join(map(str, settings.use_cases))
    places = {DURABLE: settings.durable, STATE: settings.shared}
    named |= {variable: place for variable, place in places.items() if place is not None}
    if any(place is not None and is_bucket(place) for place in places.values()):
        named |= {name: os.environ[name] for name in SERVER_VARIABLES if name in os.environ}
    return named


def claim_state(settings: Settings) -> StateFolder:
    """The state folder, to be written by this project; it remembers whose it is, by their folders of use cases.

    Raises SettingsError if it cannot be written, or is another project's.
    """
    state = StateFolder(settings.var)
    state.check_writable()
    known, mine = state_owners(settings), [str(folder) for folder in settings.use_cases]
    if not set(mine) <= set(known):
        lines = [_owners_heading(settings), *dict.fromkeys([*known, *mine])]
        write_atomic(state.root / OWNERS, "".join(f"{line}\n" for line in lines).encode())
    return state


def state_owners(settings: Settings) -> list[str]:
    """The folders of use cases that the state folder was used for, as far as they are there.

    Where none is, the project was moved; where the state folder itself was moved or copied, it goes with whoever uses
    it there. Raises SettingsError if all are another project's and the folder lies outside of this one: use cases of
    one name would share records, champions and cost.
    """
    remembered = settings.var / OWNERS
    lines = remembered.read_text(encoding="utf-8").splitlines() if remembered.is_file() else []
    here = lines[:1] == [_owners_heading(settings)]
    known = [line for line in lines[1:] if line and Path(line).is_dir()] if here else []
    mine = [str(folder) for folder in settings.use_cases]
    inside = any(settings.var.is_relative_to(folder) for folder in (settings.project, *projects(settings)))
    if known and not inside and not set(known) & set(mine):
        fix = (
            "name a folder of its own in TRAINWORTHY_VAR; for a clone or worktree that shall share it: "
            f"echo {shlex.quote(mine[0])} >> {shlex.quote(str(remembered))}"
        )
        raise SettingsError("the state folder is that of another project", value=[*known, *mine], fix=fix)
    return known


def _owners_heading(settings: Settings) -> str:
    return f"# Who uses {settings.var}: a folder of use cases a line."


def _place(variable: str) -> str | None:
    """A folder or an address of object storage; it need not be there: preflight and doctor say so."""
    named = os.environ.get(variable)
    return str(Path(named).resolve()) if named and not is_bucket(named) else named or None


def require_durable(settings: Settings) -> str | None:
    """The same before a training, never made here: a volume that is not mounted would look empty.

    Raises SettingsError if it is named and is no folder, and no address of a bucket, which is not asked here.
    """
    durable = settings.durable
    if durable is not None and is_bucket(durable):
        check_address(durable)
    elif durable is not None and not Path(durable).is_dir():
        fix = f"mount it, or name an existing folder in {DURABLE}"
        raise SettingsError("the folder for copies of checkpoints does not exist", value=durable, fix=fix)
    return durable


def dagster_url() -> str:
    """Base address of Dagster's UI, as people open it, without a slash at the end."""
    return (os.environ.get(DAGSTER_URL) or "http://127.0.0.1:3000").rstrip("/")


def mlflow_url() -> str:
    """The same of MLflow's UI. Of a tracking server it is the server's own, without a name and password in it."""
    server = urlsplit(os.environ.get("MLFLOW_TRACKING_URI", ""))
    own = "http://127.0.0.1:5000"
    if server.scheme in ("http", "https"):
        own = server._replace(netloc=server.netloc.rpartition("@")[2], query="", fragment="").geturl()
    return (os.environ.get(MLFLOW_URL) or own).rstrip("/")


def projects(settings: Settings) -> list[Path]:
    """The folders with dvc.yaml and data/versions.yaml: the parent of each folder of use cases."""
    return list(dict.fromkeys(folder.parent for folder in settings.use_cases))


def use_case_folders(settings: Settings) -> list[Path]:
    """Every folder with a use_case.yaml, by name. Raises SettingsError if two share a name."""
    folders: dict[str, Path] = {}
    for parent in settings.use_cases:
        for path in sorted(parent.glob("*/use_case.yaml")):
            name = path.parent.name
            if name in folders:
                fix = "rename one of the folders"
                raise SettingsError("two use cases share a name", value=[str(folders[name]), str(path.parent)], fix=fix)
            folders[name] = path.parent
    return [folders[name] for name in sorted(folders)]


def use_case_folder(settings: Settings, name: str) -> Path:
    """The folder of one use case. Raises SettingsError with the nearest known name."""
    folders = {folder.name: folder for folder in use_case_folders(settings)}
    if name not in folders:
        fix = (
            did_you_mean(name, folders)
            if folders
            else f"there is none yet: trainworthy new {shlex.quote(name)} --data TABLE …"
        )
        raise SettingsError("no such use case", value=name, fix=fix)
    return folders[name]
