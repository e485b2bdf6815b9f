"""The section `preflight` of use_case.yaml: what the network claims, and which checks do not apply."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from trainworthy.lifecycle.spec.frozen import Frozen

Reason = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class PreflightSpec(Frozen):
    """What preflight holds the network to. The defaults are what most networks are; nothing here changes a result."""

    start: Literal["scratch", "trained"] = Field(
        default="scratch", description="trained: build_model gives trained weights (fine-tuning, LoRA)."
    )
    frozen: tuple[str, ...] = Field(
        default=(), description="Names of parameters that do not train, as patterns: backbone.*"
    )
    rows: Literal["apart", "together"] = Field(
        default="apart", description="together: a row's loss depends on the batch's other rows (contrastive losses)."
    )
    causal: tuple[str, ...] = Field(
        default=(), description="Inputs of shape (N, T, ...) whose later positions no earlier output may see."
    )
    labels: Literal["used", "unused"] = Field(
        default="used", description="unused: the loss needs no labels (autoencoders)."
    )
    evaluation: Literal["deterministic", "stochastic"] = Field(
        default="deterministic", description="stochastic: predictions are drawn (Monte Carlo dropout)."
    )
    not_applicable: dict[str, Reason] = Field(
        default_factory=dict, description="Checks that do not apply, each with its reason: {wiring.logits: …}"
    )
