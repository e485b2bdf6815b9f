"""Preflight of a training by several processes: what needs an update's other rows is found, what does not passes."""

from dataclasses import replace

import pytest
import torch
import toy_jobs
from configured import tried
from torch import nn
from torch.nn import functional
from wiring_subjects import CNN, GPT, MLP, cnn, gpt, mlp

from trainworthy.lifecycle.data.rows import read_rows
from trainworthy.lifecycle.engine.preflight.run import run_preflight
from trainworthy.lifecycle.engine.preflight.sample import draw_sample
from trainworthy.lifecycle.engine.preflight.start.reductions import micro_batches

ID = "processes"


class Attentive(nn.Module):
    """A transformer with dropout as modules, within attention, and called as a function."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)
        self.embed, self.encoder, self.head = nn.Linear(1, 8), nn.TransformerEncoder(layer, 2), nn.Linear(8, 1)

    def forward(self, inputs):
        x = self.embed(torch.cat([inputs["x"], inputs["z"]], 1)[:, :, None])
        x = functional.scaled_dot_product_attention(x, x, x, dropout_p=0.2 if self.training else 0.0)
        x = functional.dropout(self.encoder(x).mean(1), 0.2, self.training)
        return self.head(x).squeeze(1)


class Recurrent(MLP):
    def __init__(self):
        super().__init__()
        self.recurrent = nn.LSTM(1, 16, 2, dropout=0.5, batch_first=True)

    def hidden(self, x):
        return self.recurrent(x[:, :, None])[0][:, -1]


class Layered(MLP):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)

    def hidden(self, x):
        return self.second(self.norm(self.first(x))).relu()


class Counting(MLP):
    """A buffer that each forward pass in training mode changes, and that changes what it gives."""

    scale: torch.Tensor

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(()))

    def hidden(self, x):
        if self.training:
            self.scale.mul_(0.5)
        return super().hidden(x) * self.scale


class Normed(MLP):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(16)

    def hidden(self, x):
        return self.second(self.norm(self.first(x))).relu()


class Kept(CNN):
    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self


class Noisy(MLP):
    """Noise of its own in training, as a variational autoencoder has it."""

    def hidden(self, x):
        found = super().hidden(x)
        return found + torch.randn_like(found) if self.training else found


def centred(outputs, targets):
    return (outputs - outputs.mean() - targets).square()


def contrastive(outputs, targets):
    near = -(outputs[:, None] - outputs[None, :]).square()
    return functional.cross_entropy(near + targets[None, :], torch.arange(len(outputs)), reduction="none")


def by(processes, of, **changes):
    return tried(ID, replace(of, processes=processes, **changes))


HEALTHY = {
    "mlp": mlp(),
    "transformer with dropout": mlp(Attentive),
    "causal with dropout": gpt(GPT),
    "recurrent with dropout": mlp(Recurrent),
    "layer norm": mlp(Layered),
    "group norm": cnn(lambda: CNN(lambda count: nn.GroupNorm(2, count))),
    "batch norm that is kept": cnn(Kept),
    "a buffer that each pass changes": mlp(Counting),
}


@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("name", HEALTHY)
def test_networks_whose_rows_need_no_others_pass(name, processes):
    found = by(processes, HEALTHY[name])
    assert found.status == "pass", found.evidence
    assert f"in {processes} shares" in found.evidence


def test_weighted_rows_pass():
    of = mlp()
    weights = torch.linspace(0.1, 3.0, len(of.training.targets))
    assert by(3, of, training=replace(of.training, weights=weights)).status == "pass"


@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize(
    ("of", "cause"),
    [
        (cnn(), "most likely a batch norm"),
        (mlp(Normed), "most likely a batch norm"),
        (mlp(loss_fn=centred), "in evaluation mode too"),
        (mlp(loss_fn=contrastive), "in evaluation mode too"),
    ],
    ids=["batch norm of pictures", "batch norm", "centred loss", "contrastive loss"],
)
def test_what_computes_across_rows_is_a_warning_with_its_size(of, cause, processes):
    found = by(processes, of)
    assert (found.status, found.severity, found.code) == ("fail", "warning", "across_rows")
    assert isinstance(found.observed, float)
    assert found.observed > 0.003
    assert f"{32 // processes} in a process instead of 32" in found.evidence
    assert cause in found.cause
    assert "group norm" in found.fix


def test_updates_with_fewer_rows_than_processes_fail_with_both_numbers():
    found = by(3, mlp(), fewest_rows=2)
    assert (found.status, found.severity, found.observed, found.threshold) == ("fail", "error", 2, 3)
    assert "has 2 rows for 3 processes" in found.evidence
    assert "compute.processes to 2" in found.fix
    assert by(3, mlp(), fewest_rows=3).status == "pass"


def test_claim_that_rows_belong_together_fails():
    found = by(2, mlp(loss_fn=contrastive, rows="together"))
    assert (found.status, found.severity, found.code) == ("fail", "error", "rows_together")
    assert "its own share" in found.evidence


def test_networks_that_draw_are_not_blocked():
    found = by(2, mlp(Noisy))
    assert (found.status, found.severity, found.required) == ("insufficient", "warning", False)
    assert "drawn at random" in found.evidence
    assert by(2, mlp(Noisy, evaluation="stochastic")).status == "not_applicable"


def test_too_few_rows_for_shares_of_two_are_not_judged():
    of = mlp()
    assert by(3, of, training=of.training.take(torch.arange(5))).status == "insufficient"


@pytest.mark.parametrize("of", [mlp(), cnn(), mlp(rows="together")])
def test_one_process_is_not_judged(of):
    assert by(1, of).status == "not_applicable"


def test_many_processes_see_passes_of_a_share_under_batch_norm():
    """16 processes share 32 rows: two each, of which a batch norm takes its statistics."""
    found = micro_batches(replace(cnn(), processes=16))
    assert (found.code, found.observed, found.severity) == ("few_rows_a_norm", 2, "warning")
    refused = micro_batches(replace(mlp(Normed), processes=32))
    assert (refused.code, refused.observed) == ("rows_refused", 1)
    assert "compute.processes" in refused.cause


class OfSixteen(MLP):
    """Centres the rows of a pass, if these are sixteen: of 32 the half."""

    def hidden(self, x):
        found = super().hidden(x)
        return found - found.mean(0) if len(found) == 16 else found


def test_fewest_nodes_are_tried_as_well_and_named_where_they_fail():
    found = by(4, mlp(OfSixteen), nodes=4)
    assert found.status == "pass", found.evidence
    fewer = by(4, mlp(OfSixteen), nodes=4, least_nodes=2)
    assert (fewer.status, fewer.code) == ("fail", "across_rows")
    assert fewer.evidence.startswith("by 2 processes (compute.least_nodes): ")
    # What fails for all is told of all.
    assert "32 rows in 4 shares" in by(4, mlp(Normed), nodes=4, least_nodes=2).evidence


def test_fewest_nodes_that_pass_are_told_and_a_single_process_needs_no_look():
    found = by(4, mlp(), nodes=4, least_nodes=2)
    assert (found.status, "of 4 processes, and of 2 with compute.least_nodes" in found.evidence) == ("pass", True)
    alone = by(2, mlp(), nodes=2, least_nodes=1)
    assert (alone.status, "least_nodes" in alone.evidence) == ("pass", False)


def test_sample_knows_the_jobs_processes(splits, tmp_path):
    job = toy_jobs.preflight_job(splits, tmp_path).model_copy(update={"processes": 3})
    sample = draw_sample(job, read_rows(job.training_file, job.rows), "cpu")
    assert sample.subject.processes == 3
    assert sample.subject.with_fewest_nodes() is None


def test_memory_of_the_fewest_nodes_is_that_of_larger_shares_on_one_machine(splits, tmp_path):
    given = {"processes": 4, "nodes": 4, "least_nodes": 1}
    result = run_preflight(toy_jobs.preflight_job(splits, tmp_path).model_copy(update=given))
    assert result.fewest is not None
    assert result.step_memory is not None
    assert result.fewest.step_memory is not None
    assert (result.step_memory.nodes, result.fewest.step_memory.nodes) == (4, 1)
    assert result.fewest.step_memory.rows == 4 * result.step_memory.rows
    assert result.fewest.memory is not None
