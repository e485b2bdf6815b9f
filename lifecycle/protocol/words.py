"""What people call the parts of a kind of task, in verdicts, checks, the report and on the terminal."""

from __future__ import annotations

from trainworthy.lifecycle.spec.frozen import Frozen


class Words(Frozen):
    """The words of one kind; without any they are those of a label of 0 and 1.

    `constant` says what the loss of the prior is the loss of, `unit` what a loss is counted in, empty where it has no
    name, and `a_row` what a row loses some of. `predicted` and `observed` are the axes of the reliability picture.
    `familiar` are metrics that people know, the best known first, each with what it means: {value} stands for its
    value, {share} for that in percent.
    """

    prior: str = "label prior"
    linear: str = "logistic regression"
    constant: str = "always predicting the training rows' share of positives"
    unit: str = "nats"
    a_row: str = "nats a row"
    predicted: str = "mean predicted probability"
    observed: str = "observed share"
    familiar: tuple[tuple[str, str], ...] = (("auc", "a positive row ranks above a negative one in {share} of pairs"),)

    def reference(self, name: str) -> str:
        """What a candidate is compared with, as one calls it."""
        return {"prior": self.prior, "linear": self.linear}.get(name, name.replace("_", " "))
