"""Who the champion is: the verdict log says it, and the registry's alias must agree."""

from __future__ import annotations

from lifecycle.errors import ChampionError
from lifecycle.promotion import log
from lifecycle.promotion.log import LogEntry


def agreed_champion(entries: tuple[LogEntry, ...], name: str, aliased: str | None, registry: str) -> str | None:
    """Version of the champion by the log's `entries`, or None if none was promoted.

    `aliased` is the version that the alias `champion` of the model `name` points to in the registry at the
    address `registry`. Raises ChampionError if it is another one: somebody moved the alias, the log belongs
    to another registry, or a promotion or rollback ended between writing the log and moving the alias.
    """
    entry = log.champion(entries)
    logged = entry.model_version if entry else None
    if logged == aliased:
        return logged
    raise ChampionError(
        "the verdict log and the alias champion disagree",
        value={"verdict log": logged, "alias": aliased},
        fix=_fix(name, logged, registry),
    )


def _fix(name: str, logged: str | None, registry: str) -> str:
    """The command that makes the alias follow the log again."""
    call = f"set_registered_model_alias({name!r}, 'champion', {logged!r})"
    if logged is None:
        call = f"delete_registered_model_alias({name!r}, 'champion')"
    command = f'python -c "from mlflow import MlflowClient; MlflowClient({registry!r}).{call}"'
    follow = f"make the alias follow the log: {command}; or use the state folder that this registry belongs to"
    return follow if logged is None else f"{follow}. To go back to an earlier champion, then run rollback_{name}"
