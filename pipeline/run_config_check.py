"""A run config before a run: what Dagster would refuse with a traceback, as one error in the words of its writer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from trainworthy.lifecycle.errors import Problem, SettingsError, did_you_mean, nearest
from trainworthy.lifecycle.use_case import UseCase
from trainworthy.resources.workspace import Intent

_PAGE = "docs/how-to/use-case.md#the-run-config"
# Where what a run declares stands (lifecycle/run_config.py).
_INTENT = ("resources", "intent", "config")
_KINDS = {"Bool": "true or false", "String": "a text, in quotes where it looks like a number", "Int": "a whole number"}


def checked_run_config(path: Path, use_case: UseCase, job: str) -> None:
    """Nothing, if Dagster takes the file as the run config of the use case's job. Raises SettingsError."""
    from trainworthy.pipeline.build import build_defs

    config = _read(path)
    problems = tuple(_problems(build_defs([use_case]).resolve_job_def(f"{job}_{use_case.name}"), config))
    if not problems:
        return
    if len(problems) == 1:
        (one,) = problems
        raise SettingsError(f"the run config has a mistake: {one.where}: {one.problem}", value=one.value, fix=one.fix)
    lines = "\n".join(f"  - {problem}" for problem in problems)
    raise SettingsError(f"the run config has {len(problems)} mistakes:\n{lines}", value=str(path), fix="correct them")


def _read(path: Path) -> Mapping[str, Any]:
    import yaml

    from trainworthy.lifecycle.unique_keys import unique_keys_loader, yaml_mistake

    text = ""
    try:
        text = path.read_text(encoding="utf-8")
        config = yaml.load(text, unique_keys_loader())  # noqa: S506  (a safe loader)
    except OSError as error:
        fix = f"name a file that can be read, such as use_cases/NAME/first_model.yaml; {_PAGE}"
        raise SettingsError(f"the run config cannot be read: {error.strerror}", value=str(path), fix=fix) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mistake = yaml_mistake(error, text)
        problem, fix = f"the run config is no YAML: {mistake.problem}", f"{mistake.fix}; {_PAGE}"
        raise SettingsError(problem, value=mistake.where(str(path)), fix=fix) from None
    if config is not None and not isinstance(config, dict):
        fix = f"begin with `resources:`; {_PAGE}"
        raise SettingsError("the run config is no mapping of keys", value=config, fix=fix)
    return config or {}


def _problems(job: dg.JobDefinition, config: Mapping[str, Any]) -> Iterator[Problem]:
    try:
        dg.validate_run_config(job, config)
    except dg.DagsterInvalidConfigError as refused:
        for error in refused.errors:
            path = [str(name) for entry in error.stack.entries if (name := getattr(entry, "field_name", None))]
            yield from _in_words(error.error_data, path, error.message, job, config)


def _in_words(
    data: Any, path: Sequence[str], said: str, job: dg.JobDefinition, config: Mapping[str, Any]
) -> Iterator[Problem]:
    """What Dagster found at a place, key by key; its own first sentence where the kind of mistake is another."""
    where = ".".join(path) or "at the top"
    names = getattr(data, "field_names", None) or [name for name in [getattr(data, "field_name", None)] if name]
    if names and type(data).__name__.startswith("Field"):
        yield from (Problem(where, "unknown key", _right_place(name, _known(job, path)), name) for name in names)
    elif kind := getattr(data, "config_type_snap", None):
        yield Problem(where, "there is no such value", _right_value(kind, _at(config, path)), _at(config, path))
    else:
        yield Problem(where, said.partition(". Expected")[0], _PAGE)


def _known(job: dg.JobDefinition, path: Sequence[str]) -> tuple[str, ...]:
    """The keys that Dagster takes at a place of the job's run config; none where that is no mapping."""
    kind: Any = job.run_config_schema.config_type
    for name in path:
        kind = getattr(kind, "fields", {}).get(name)
        kind = getattr(kind, "config_type", None)
    return tuple(getattr(kind, "fields", None) or ())


def _right_place(name: str, known: Sequence[str]) -> str:
    """The name that is meant there; of what a run declares its place, where it stands at another."""
    meant = nearest(name, Intent.model_fields)
    if meant is None or nearest(name, known) is not None:
        return did_you_mean(name, known)
    return f"it belongs to what the run declares: {': {'.join(_INTENT)}: {{{meant}: …}}}}}}"


def _right_value(kind: Any, value: object) -> str:
    if kind.enum_values:
        return did_you_mean(str(value), [one.value for one in kind.enum_values])
    return f"write {_KINDS.get(kind.given_name, kind.given_name)}"


def _at(config: Any, path: Sequence[str]) -> object:
    for name in path:
        config = config.get(name) if isinstance(config, Mapping) else None
    return config
