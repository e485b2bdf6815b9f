"""The rules' meaning, word by word from rule.py for the kinds that an engine may not know yet."""

import numpy as np
import pandas as pd

from expectations.validate import validate_frame
from lifecycle.contract.result import RuleResult
from lifecycle.contract.rule import surplus, within

OWN = ("null_together", "references", "distribution")


def judge(frame, contract):
    """validate_frame's results, of the three kinds counted here."""
    others = contract.model_copy(update={"rules": tuple(rule for rule in contract.rules if rule.kind not in OWN)})
    found = {result.rule.id: result for result in validate_frame(frame, others)} if others.rules else {}
    return tuple(found.get(rule.id) or _judged(frame, rule) for rule in contract.rules)


def _judged(frame, rule):
    count = {"null_together": _apart, "references": _foreign, "distribution": _moved}[rule.kind](frame, rule)
    status = "pass" if within(rule.parameters["bound"], count, len(frame)) else "fail"
    return RuleResult(rule=rule, status=status, rows=len(frame), count=count)


def _apart(frame, rule):
    nulls = frame[list(rule.columns)].isna().sum(axis=1)
    return int(((nulls > 0) & (nulls < len(rule.columns))).sum())


def _foreign(frame, rule):
    known = frame[list(rule.columns)].dropna()
    keys = set(map(tuple, rule.parameters["keys"]))
    return sum(tuple(row) not in keys for row in known.itertuples(index=False))


def _moved(frame, rule):
    return surplus(counted(frame[rule.columns[0]], rule.parameters), rule.parameters["counts"])


def counted(values, parameters):
    """Rows of each bin, as rule.py words it."""
    known = values.dropna()
    if "values" in parameters:
        counts = [int((known == value).sum()) for value in parameters["values"]]
        return [*counts, len(known) - sum(counts), len(values) - len(known)]
    edges = parameters["edges"]
    if edges and isinstance(edges[0], str):
        edges = [pd.Timestamp(edge).value for edge in edges]
        known = known.dt.as_unit("ns").astype("int64")
    places = np.searchsorted(np.array(edges, float), known.to_numpy(float), side="right")
    return [*np.bincount(places, minlength=len(edges) + 1).tolist(), len(values) - len(known)]
