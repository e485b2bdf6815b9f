"""Several processes divide one model: as one process would train it, from and to the same checkpoints."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from forked_nodes import train_by_nodes
from forked_ranks import told_by_ranks, train_by_ranks
from test_ranks import FAULTS, FORWARD, SAME, by_one, job_of, losses
from torch import nn
from toy_jobs import changed_use_case

from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.engine.training import loop
from trainworthy.lifecycle.engine.training.ranks.blocks import blocks_of, largest_share
from trainworthy.lifecycle.error_causes import PreemptedError
from trainworthy.lifecycle.failure import EXIT_BAD_INPUT, EXIT_HANG, EXIT_PREEMPTED
from trainworthy.lifecycle.folder_lock import locked
from trainworthy.lifecycle.protocol.jobs import TrainJob

# What each rank holds of the model and of its optimizer, in numbers, written down by a rank at its end.
HELD = """
def build_optimizers(model, declared):
    optimizer = torch.optim.AdamW(model.parameters(), lr=declared["learning_rate"], fused=True)
    step, numel = optimizer.step, lambda tensors: sum(t.to_local().numel() for t in tensors)

    def counted(*arguments):
        import json, os
        made = step(*arguments)
        states = [state[name] for state in optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")]
        with open(f"{os.environ['HELD']}{os.environ['RANK']}", "w") as file:
            json.dump([numel(model.parameters()), numel(states), sum(p.numel() for p in model.parameters())], file)
        return made

    optimizer.step = counted
    return [optimizer]


def loss_fn("""


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    """The toy without dropout."""
    return changed_use_case(tmp_path_factory.mktemp("plain") / "toy", SAME)


@pytest.fixture(scope="module")
def faulty(tmp_path_factory) -> Path:
    """The toy with dropout, and faults that the environment asks for."""
    return changed_use_case(
        tmp_path_factory.mktemp("faulty") / "toy", (FORWARD, f"{FAULTS}{FORWARD}        self.fault()\n")
    )


def sharded(splits: Path, out: Path, use_case: Path, size: int = 2, **fields: Any) -> TrainJob:
    training = {"ema": None} | fields.pop("training", {})
    return job_of(splits, out, use_case, size, training=training, **{"sharding": "fsdp"} | fields)


def assert_close(ours: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> None:
    assert ours.keys() == others.keys()
    for name, tensor in others.items():
        torch.testing.assert_close(ours[name], tensor, atol=1e-5, rtol=1e-5)


def weights(out: Path) -> dict[str, torch.Tensor]:
    """Those of the newest checkpoint."""
    newest = max((out / "checkpoints").glob("*/state.pt"))
    return torch.load(newest, weights_only=True)["model"]


@pytest.mark.parametrize(
    ("size", "sharding"),
    [(2, "fsdp"), pytest.param(3, "fsdp", marks=pytest.mark.slow), pytest.param(2, "none", marks=pytest.mark.slow)],
)
def test_shards_train_as_replicas_and_as_one_process_do(splits, plain, tmp_path, size, sharding):
    """74 rows an update in two parts, which neither two nor three ranks get equal shares of."""
    extra = {"training": {"evaluate_every": 2, "reserve": 0.1}, "slices": ("shop",)}
    one = by_one(sharded(splits, tmp_path / "one", plain, **extra))
    many = train_by_ranks(sharded(splits, tmp_path / "many", plain, size, **extra, sharding=sharding))
    assert losses(many.curve) == pytest.approx(losses(one.curve), abs=1e-6)
    # What is scored beside the curve: in passes that the others make with the first, and of all rows' losses.
    assert [(point.slice, point.scored) for point in many.monitored] == [
        (point.slice, point.scored) for point in one.monitored
    ]
    assert losses(many.monitored) == pytest.approx(losses(one.monitored), abs=1e-6)
    assert many.metrics["val_loss"] == pytest.approx(one.metrics["val_loss"], abs=1e-6)
    assert not many.alarms
    assert_close(weights(tmp_path / "many"), weights(tmp_path / "one"))
    assert any("divided over" in note and "not looked at" in note for note in many.notes) == (sharding == "fsdp")


def test_a_wrong_share_of_the_gradients_would_be_seen(splits, plain, tmp_path, monkeypatch):
    """Each rank's mean counted alike, as FSDP's own average does: 37 rows are 19 and 18."""
    correct = loop.backward

    def each_rank_alike(model, data, rows, recipe, generator, of, scale=1.0):
        of = len(rows) * 2 if scale != 1.0 else of
        return correct(model, data, rows, recipe, generator, of, scale)

    one = by_one(sharded(splits, tmp_path / "one", plain, training={"accumulate": 1}))
    monkeypatch.setattr(loop, "backward", each_rank_alike)
    two = train_by_ranks(sharded(splits, tmp_path / "two", plain, training={"accumulate": 1}))
    assert losses(two.curve) != pytest.approx(losses(one.curve), abs=1e-5)


def test_each_rank_holds_its_part_of_weights_and_optimizer_states(splits, tmp_path):
    use_case = changed_use_case(tmp_path / "toy", SAME, ("def loss_fn(", HELD))
    train_by_ranks(sharded(splits, tmp_path / "out", use_case), {"HELD": str(tmp_path / "held")})
    held = [json.loads((tmp_path / f"held{rank}").read_text()) for rank in range(2)]
    whole = held[0][2]
    # Also of the last layer's weights, which are one row of 32.
    assert sum(parameters for parameters, _, _ in held) == whole
    assert sum(states for _, states, _ in held) == 2 * whole
    for parameters, states, _ in held:
        assert parameters == pytest.approx(whole / 2, rel=0.05)
        assert states == 2 * parameters


def test_shards_go_on_bit_for_bit_after_any_end(splits, faulty, tmp_path):
    quiet = train_by_ranks(sharded(splits, tmp_path / "quiet", faulty))
    job = sharded(splits, tmp_path / "ended", faulty)
    code, told = told_by_ranks(job, {"FAULT": "ask"})
    assert code == EXIT_PREEMPTED
    code, told = told_by_ranks(job, {"FAULT": "kill"})
    assert (code, told["rank"]) == (-signal.SIGKILL, 1)
    assert "was killed by SIGKILL" in told["problem"]
    result = train_by_ranks(job)
    assert result.resumed_from_step > 0
    assert result.parameters_sha256 == quiet.parameters_sha256
    assert losses(result.curve) == losses(quiet.curve)


def test_a_training_goes_on_in_one_process_and_in_shards_again(splits, plain, tmp_path):
    """From two to one to two, with the weights of one throughout, to the last digits."""
    use_case = changed_use_case(tmp_path / "toy", SAME, (FORWARD, f"{FAULTS}{FORWARD}        self.fault()\n"))
    by_one(sharded(splits, tmp_path / "whole", plain))
    job = sharded(splits, tmp_path / "out", use_case)
    told_by_ranks(job, {"FAULT": "ask"})
    with locked(Path(job.out), print), pytest.raises(PreemptedError):
        run_stage(job.model_copy(update={"processes": 1, "sharding": "none"}), should_stop=lambda: True)
    two = train_by_ranks(job)
    assert two.resumed_from_step > 1
    assert any("processes 2 instead of 1, sharding fsdp instead of none" in note for note in two.notes)
    assert_close(weights(tmp_path / "out"), weights(tmp_path / "whole"))


def test_odd_networks_are_divided_and_train_as_one(splits, tmp_path):
    """Odd sizes, fewer numbers than ranks, tied weights, a part without a gradient, and blocks that are recomputed."""
    use_case = changed_use_case(
        tmp_path / "toy", SAME,
        ("        self.layers =",
         "        self.blocks = nn.ModuleList(\n"
         "            nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 4)) for _ in range(3))\n"
         "        self.tied = nn.Linear(4, 3)\n        self.blocks[1][0].weight = self.tied.weight\n"
         "        self.unused, self.one = nn.Linear(3, 3), nn.Parameter(torch.zeros(1))\n        self.layers ="),
        ("        return self.layers(torch.cat([inputs[\"numbers\"], self.shop(inputs[\"shop\"])], dim=1)).squeeze(1)",
         "        x = torch.cat([inputs[\"numbers\"], self.shop(inputs[\"shop\"])], dim=1)\n"
         "        for block in self.blocks: x = x + block(x)\n"
         "        return self.layers(x).squeeze(1) + self.tied(x).sum(1) + self.one"),
    )  # fmt: skip
    # A decay that shows if what has no gradient is moved by it all the same.
    optimizer = {"name": "adamw", "learning_rate": 0.01, "weight_decay": 0.5}
    training = {"activation_checkpointing": ["blocks.*"], "optimizer": optimizer}
    by_one(sharded(splits, tmp_path / "one", use_case, training=training))
    result = train_by_ranks(sharded(splits, tmp_path / "two", use_case, training=training))
    assert any("in 5 blocks and the rest" in note for note in result.notes)
    assert_close(weights(tmp_path / "two"), weights(tmp_path / "one"))


@pytest.mark.slow
def test_shards_on_two_nodes_have_the_bits_of_those_on_one(splits, faulty, tmp_path):
    one = train_by_ranks(sharded(splits, tmp_path / "one", faulty))
    assert train_by_nodes(sharded(splits, tmp_path / "two", faulty)).parameters_sha256 == one.parameters_sha256


@pytest.mark.parametrize("action", ["skip_batch", pytest.param("roll_back", marks=pytest.mark.slow)])
def test_what_the_first_decides_all_do(splits, tmp_path, action):
    """Who waits for the verdict is asked which weights are not finite; a training that goes back is divided anew."""
    use_case = changed_use_case(
        tmp_path / "toy", SAME,
        ("dim=1)).squeeze(1)", "dim=1)).squeeze(1) / (inputs['numbers'][:, 0] < 2.5)"),
    )  # fmt: skip
    training = {"monitors": {"non_finite": action, "most_times": 3}, "epochs": 8}
    one, two = (
        train(sharded(splits, tmp_path / name, use_case, training=training))
        for name, train in (("1", by_one), ("2", train_by_ranks))
    )
    assert one.alarms[0].action == action
    assert [(alarm.step, alarm.action) for alarm in two.alarms] == [(alarm.step, alarm.action) for alarm in one.alarms]
    assert losses(two.curve) == pytest.approx(losses(one.curve), abs=1e-6)


@pytest.mark.slow
def test_early_stopping_evaluates_and_keeps_the_whole_model(splits, plain, tmp_path):
    training = {
        "optimizer": {"name": "sgd", "learning_rate": 0.3, "weight_decay": 0.0}, "epochs": 20,
        "early_stopping": {"every": 4, "patience": 1, "min_steps": 24},
    }  # fmt: skip
    one, two = (
        train(sharded(splits, tmp_path / name, plain, training=training))
        for name, train in (("1", by_one), ("2", train_by_ranks))
    )
    assert (two.ended, two.steps) == (one.ended, one.steps)
    assert two.ended == "early"
    assert two.metrics["val_loss"] == pytest.approx(one.metrics["val_loss"], abs=1e-5)


@pytest.mark.slow
def test_the_scale_of_fp16_is_that_of_all(splits, plain, tmp_path):
    one, two = (
        train(sharded(splits, tmp_path / name, plain, training={"precision": "fp16"}))
        for name, train in (("1", by_one), ("2", train_by_ranks))
    )
    # fp16 has three digits.
    assert losses(two.curve) == pytest.approx(losses(one.curve), abs=1e-3)
    (scaled,) = (note for note in one.notes if "loss scale" in note)
    assert scaled in two.notes


@pytest.mark.slow
@pytest.mark.parametrize("faulty_rank", [0, 1])
def test_a_rank_that_hangs_is_named_with_its_line(splits, faulty, tmp_path, faulty_rank):
    """The other one waits in the same forward pass, for the weights of its next block."""
    job = sharded(splits, tmp_path / "out", faulty, collective_timeout_seconds=8.0)
    code, told = told_by_ranks(job, {"FAULT": "loop", "FAULTY": str(faulty_rank)})
    assert (code, told["rank"]) == (EXIT_HANG, faulty_rank)
    assert "in fault" in told["value"]


@pytest.mark.parametrize(
    ("replacements", "problem"),
    [
        ([("        self.shop =", "        self.scale = nn.Parameter(torch.ones(()))\n        self.shop =")],
         "a parameter without dimensions cannot be sharded"),
        ([("def loss_fn(", "sharpness = nn.Parameter(torch.zeros(1))\n\n\ndef build_optimizers(model, declared):\n"
           "    return [torch.optim.SGD([*model.parameters(), sharpness], lr=0.1)]\n\n\ndef loss_fn(")],
         "an optimizer moves a parameter that is none of the model's"),
        ([("dim=1)).squeeze(1)", "dim=1)).squeeze(1) + self.layers[0].bias.sum()")],
         "weights are used outside of the forward pass of the module that holds them"),
    ],
    ids=["scalar", "outside", "used_outside"],
)  # fmt: skip
def test_what_cannot_be_divided_is_told_with_what_helps(splits, tmp_path, replacements, problem):
    use_case = changed_use_case(tmp_path / "toy", *replacements)
    code, told = told_by_ranks(sharded(splits, tmp_path / "out", use_case))
    assert code == EXIT_BAD_INPUT
    assert problem in told["problem"]
    assert "compute.sharding" in told["fix"]


def layer(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))


def test_blocks_are_the_outermost_members_that_stand_alone():
    first, second, third, last = (layer(8) for _ in range(4))
    inner = nn.ModuleList([second, third])
    network = nn.Module()
    network.embedding, network.head = nn.Embedding(50, 8), nn.Linear(8, 50)
    network.layers = nn.ModuleList([first, nn.Identity(), inner, last])
    blocks = blocks_of(network)
    assert blocks == [first, second, third, last]
    rest = 50 * 8 + 9 * 50
    assert largest_share(network, blocks) == pytest.approx(rest / (rest + 4 * 2 * 72))
    # What is tied to a module outside of a layer stays with the rest of the network.
    last[0].weight = first[0].weight
    assert blocks_of(network) == [first[2], second, third, last[2]]
    # One that is most of the network is divided further.
    most, head = layer(64), nn.Linear(64, 1)
    assert blocks_of(nn.Sequential(most, head)) == [most[0], most[2], head]
