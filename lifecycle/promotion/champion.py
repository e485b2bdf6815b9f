"""Who the champion is: the verdict log says it, and the registry's alias must agree."""

from __future__ import annotations

from trainworthy.lifecycle.errors import ChampionError
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.promotion.log import LogEntry


def agreed_champion(entries: tuple[LogEntry, ...], name: str, aliased: str | None) -> str | None:
    """Version of the champion by the log's `entries`, or None if none was promoted.

    `aliased` is the version that the alias `champion` of the model `name` points to in the registry. Raises
    ChampionError if it is another one: somebody moved the alias, the log belongs to another registry, or a
    promotion or rollback ended between writing the log and moving the alias.
    """
    entry = log.champion(entries)
    logged = entry.model_version if entry else None
    if logged == aliased:
        return logged
    raise ChampionError(
        "the verdict log and the alias champion disagree",
        value={"verdict log": logged, "alias": aliased},
        fix=_fix(name, logged),
    )


def _fix(name: str, logged: str | None) -> str:
    """How the two agree again. An alias without a log is never taken away: it may be all that is left."""
    if logged is None:
        return f"use the state folder whose log promoted it, or remove the alias champion of {name} in MLflow"
    follow = (
        "trainworthy doctor --fix makes the alias follow the log, unless another state may have promoted what it has"
    )
    back = f"trainworthy rollback {name} --reason TEXT"
    return f"{follow}; or use the state folder of this registry. To go back to an older champion: {back}"
