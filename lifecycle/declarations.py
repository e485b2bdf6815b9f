"""What a use case declares, held against what there is: its contract, its dataset version, its price."""

from __future__ import annotations

from trainworthy.lifecycle.agreement import agreement_problems
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.cost.prices import Prices
from trainworthy.lifecycle.errors import Problem, TrainworthyError, UseCaseError
from trainworthy.lifecycle.files.versions import published_version
from trainworthy.lifecycle.use_case import UseCase


def declaration_problems(use_case: UseCase, prices: Prices) -> list[Problem]:
    """All that is wrong in the contract, between the files, and with what they name."""
    try:
        problems = agreement_problems(use_case, load_contract(use_case.contract_path))
    except UseCaseError as error:
        problems = list(error.problems)
    declared, compute = use_case.spec.dataset, use_case.spec.compute
    for where, ask in {
        "use_case.yaml: dataset": lambda: published_version(use_case.project, declared.name, declared.version),
        "use_case.yaml: compute.sku": lambda: prices.sku(compute.sku),
    }.items():
        try:
            ask()
        except TrainworthyError as error:
            problems.append(Problem(where, error.problem, error.fix, error.value))
    return problems


def refuse_declarations(use_case: UseCase, prices: Prices) -> None:
    """Raises UseCaseError with everything that declaration_problems finds."""
    problems = declaration_problems(use_case, prices)
    if problems:
        raise UseCaseError(use_case.name, problems)
