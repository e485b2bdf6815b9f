"""What a GPU does not survive: a loss is asked on the CPU first, and a use case that ends CUDA is tried there."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional
from toy_jobs import changed_use_case, preflight_job

from benchmarks.healthy import mlp
from trainworthy.lifecycle.engine.outputs.directional_derivative import copy_in_float64
from trainworthy.lifecycle.engine.preflight import on_device as module
from trainworthy.lifecycle.engine.preflight.cpu_first import AskedOnCpu, as_trained, cpu_first, in_float64
from trainworthy.lifecycle.engine.preflight.on_device import on_device
from trainworthy.lifecycle.engine.preflight.run import run_preflight
from trainworthy.lifecycle.error_causes import ended_its_device
from trainworthy.lifecycle.errors import Problem, TrainingError, UseCaseError
from trainworthy.lifecycle.protocol.results import PreflightResult

ASSERTED = "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported"


def dies_on_cuda(job, device):
    """An attempt that ends CUDA, told as it is: late, by what asked next."""
    if device == "cuda":
        try:
            raise RuntimeError(ASSERTED)
        finally:
            raise KeyError("random state")
    return PreflightResult(memory=None, seconds=None, device=device, untried="no rows")


def test_attempt_that_ends_cuda_is_made_on_the_cpu_in_a_new_process(splits, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "choose_device", lambda declared: "cuda")
    found = on_device(preflight_job(splits, tmp_path, device="cuda"), dies_on_cuda)
    assert found.device == "cpu"
    assert found.untried.startswith("a kernel failed its own check on the GPU")
    assert found.untried.endswith("was found on the CPU; no rows")
    assert "once more on the CPU" in capsys.readouterr().err


def test_attempt_that_fails_otherwise_is_made_once(splits, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "choose_device", lambda declared: "cuda")

    def fails(job, device):
        raise RuntimeError("CUDA out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        on_device(preflight_job(splits, tmp_path, device="cuda"), fails)


def test_label_beyond_the_head_is_found_on_any_device(splits, tmp_path):
    """On the CPU an IndexError of torch; on a GPU (make test-gpu) an assertion that would end CUDA."""
    of_two = "nn.functional.cross_entropy(torch.stack([outputs, -outputs], 1), 2 * targets.long(), reduction='none')"
    use_case = changed_use_case(
        tmp_path / "toy",
        ('nn.functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")', of_two),
    )
    result = run_preflight(preflight_job(splits, tmp_path, use_case=use_case))
    told = [trial for trial in result.trials if trial.status in ("fail", "error")]
    assert any("Target 2 is out of bounds" in trial.evidence for trial in told), [one.evidence for one in told]


def test_token_beyond_the_embedding_is_found_on_any_device(splits, tmp_path):
    use_case = changed_use_case(tmp_path / "toy", ('self.shop(inputs["shop"])', 'self.shop(inputs["shop"] + 100)'))
    result = run_preflight(preflight_job(splits, tmp_path, use_case=use_case))
    told = [trial for trial in result.trials if trial.status in ("fail", "error")]
    assert any("index out of range" in trial.evidence for trial in told), [one.evidence for one in told]
    assert result.device == "cpu"


@pytest.mark.parametrize(
    ("error", "dead"),
    [
        (RuntimeError(ASSERTED), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), True),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), False),
        (ValueError("device-side assert"), False),
    ],
)
def test_error_that_ends_cuda_is_known_by_its_words(error, dead):
    assert ended_its_device(error) is dead


def test_loss_is_asked_on_the_cpu_first_with_its_graph_and_draws_nothing_more():
    seen = []

    def loss_fn(outputs, targets):
        (slope,) = torch.autograd.grad(outputs.sum(), outputs, create_graph=True)
        seen.append((outputs.device.type, slope.device.type))
        return functional.dropout(outputs.square(), 0.5)

    outputs = torch.randn(4, requires_grad=True)
    torch.manual_seed(0)
    once = loss_fn(outputs, torch.ones(4))
    torch.manual_seed(0)
    assert torch.equal(AskedOnCpu(loss_fn)(outputs, torch.ones(4)), once)
    assert seen == [("cpu", "cpu")] * 3


def test_loss_with_tensors_of_its_own_on_the_gpu_is_asked_there_alone():
    refusals = [RuntimeError("Expected all tensors to be on the same device, but found cuda:0 and cpu!")]

    def loss_fn(outputs, targets):
        if refusals:
            raise refusals.pop()
        return outputs

    assert torch.equal(AskedOnCpu(loss_fn)(torch.ones(2), torch.ones(2)), torch.ones(2))
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        AskedOnCpu(functional.binary_cross_entropy)(torch.full((2,), 1.5), torch.ones(2))


def test_subject_on_a_gpu_is_asked_so_and_measured_as_it_is_trained():
    plain = mlp(0).subject()
    moved = replace(plain, device="cuda")
    assert cpu_first(plain) is plain
    assert isinstance(cpu_first(moved).recipe.loss_fn, AskedOnCpu)
    assert as_trained(cpu_first(moved)).recipe.loss_fn is plain.recipe.loss_fn
    assert as_trained(plain) is plain


def refuses(job, device):
    raise UseCaseError("toy", [Problem("model.py", "no rows", "give some")])


def breaks(job, device):
    if device == "cuda":
        raise RuntimeError(ASSERTED)
    raise IndexError("Target 7 is out of bounds")


def refuses_on_cpu(job, device):
    if device == "cuda":
        raise RuntimeError(ASSERTED)
    refuses(job, device)


@pytest.mark.parametrize(
    ("attempt", "kind", "told"),
    [(refuses_on_cpu, UseCaseError, "no rows"), (breaks, TrainingError, "IndexError: Target 7 is out of bounds")],
)
def test_error_of_the_attempt_on_the_cpu_comes_back_as_it_was(splits, tmp_path, monkeypatch, attempt, kind, told):
    monkeypatch.setattr(module, "choose_device", lambda declared: "cuda")
    with pytest.raises(kind, match=told) as caught:
        on_device(preflight_job(splits, tmp_path, device="cuda"), attempt)
    assert "test_on_device.py" in str(caught.value.value) or caught.value.problems


@pytest.mark.parametrize("short", [torch.float16, torch.bfloat16])
def test_loss_of_short_numbers_is_asked_in_float32_and_what_a_cpu_lacks_is_passed_over(short):
    weights = torch.ones(2)
    asked = []

    def loss_fn(outputs, targets):
        asked.append(outputs.dtype)
        return (outputs.float() if len(asked) > 1 else outputs) @ weights

    AskedOnCpu(loss_fn)(torch.ones(3, 2, dtype=short), torch.ones(3))
    assert asked == [torch.float32, short]

    def lacks(outputs, targets):
        if len(asked) == 2:
            asked.append(None)
            raise NotImplementedError("not implemented for the CPU")
        return outputs

    assert torch.equal(AskedOnCpu(lacks)(torch.ones(2), torch.ones(2)), torch.ones(2))


def test_copy_of_a_loss_with_weights_in_float64_is_asked_so_too():
    loss = AskedOnCpu(torch.nn.CrossEntropyLoss(weight=torch.ones(3), reduction="none"))
    found = in_float64(loss, copy_in_float64)(torch.ones(2, 3, dtype=torch.float64), torch.tensor([0, 2]))
    assert found.dtype == torch.float64
