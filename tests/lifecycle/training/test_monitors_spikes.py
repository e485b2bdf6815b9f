"""Not finite, spikes and trends: planted in the four hosts, and the same hosts healthy."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from made_signals import signals, told
from monitored import HOSTS, ONSET, alarms, from_onset, host, rate_times, watched
from torch import nn

from trainworthy.lifecycle.engine.training.monitors.spikes import Spikes
from trainworthy.lifecycle.engine.training.monitors.trends import KEEP_EVERY, KEPT, Trends
from trainworthy.lifecycle.engine.training.state import TrainState
from trainworthy.lifecycle.protocol.signals import Signals

NAMES = list(HOSTS)


@pytest.mark.parametrize("name", NAMES)
def test_healthy_host_raises_no_alarm(name):
    watch, state = watched(host(name))
    assert watch.alarms == []
    assert state.step == 130


@pytest.mark.parametrize("name", NAMES)
def test_outputs_that_turn_and_grow_are_a_loss_spike_within_twenty_updates(name):
    watch, _ = watched(from_onset(lambda outputs: -30 * outputs)(host(name)), steps=ONSET + 20)
    (alarm,) = alarms(watch)
    assert (alarm.monitor, alarm.onset) == ("loss_spike", ONSET)


# With batch norm the loss comes back to an untrained network's, which is no level above the start: one batch is told.
@pytest.mark.parametrize(
    ("name", "severity"), [("mlp", "critical"), ("unet", "critical"), ("gpt", "critical"), ("cnn", "warning")]
)
def test_learning_rate_that_jumps_is_told_within_twenty_updates(name, severity):
    watch, _ = watched(rate_times(300)(host(name)), steps=ONSET + 20)
    assert alarms(watch, severity)
    assert all(alarm.onset >= ONSET for alarm in watch.alarms)


@pytest.mark.parametrize("name", NAMES)
def test_one_batch_far_above_all_others_is_a_warning_and_left_out_where_that_is_declared(name):
    planted = from_onset(lambda outputs: 1e4 * outputs, end=ONSET + 1)
    watch, _ = watched(planted(host(name)), steps=ONSET + 3, outlier_batch="skip_batch")
    assert [(alarm.monitor, alarm.severity, alarm.step) for alarm in watch.alarms] == [
        ("outlier_batch", "warning", ONSET)
    ]
    assert watch.policy.skipped == [ONSET]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("value", "monitor"), [("nan", "non_finite_loss"), ("root", "non_finite_gradient")])
def test_what_is_not_finite_stops_at_once_with_finite_weights(name, value, monitor):
    def root(outputs: torch.Tensor) -> torch.Tensor:
        return outputs + (outputs * 0).sqrt()

    change = root if value == "root" else lambda outputs: outputs * float(value)
    watch, state = watched(from_onset(change)(host(name)), steps=ONSET + 3)
    assert watch.ended is not None
    assert (watch.ended.monitor, watch.ended.step, state.step) == (monitor, ONSET, ONSET)
    if value == "root":
        assert watch.ended.where
    assert all(bool(torch.isfinite(tensor).all()) for tensor in state.model.state_dict().values())


@pytest.mark.parametrize("name", NAMES)
def test_weight_that_becomes_not_finite_is_named(name):
    def spoil(state: TrainState) -> None:
        if state.step == ONSET:
            with torch.no_grad():
                state.parameters[1].view(-1)[0] = torch.inf

    watch, state = watched(host(name), steps=ONSET + 20, after=spoil)
    assert watch.ended is not None
    assert (watch.ended.monitor, watch.back_before) == ("non_finite_parameter", ONSET - 1)
    assert watch.ended.where == (next(iter(list(dict(state.model.named_parameters()))[1:])),)


def test_activation_that_the_loss_does_not_use_is_a_warning():
    class Beside(nn.Module):
        def __init__(self, inside: nn.Module) -> None:
            super().__init__()
            self.inside, self.logarithm = inside, nn.LogSigmoid()

        def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
            found = self.inside(inputs)
            self.logarithm(found.detach() * -torch.inf)
            return found

    base = host("mlp")
    watch, _ = watched(replace(base, network=lambda: Beside(base.network())), steps=5)
    (alarm,) = watch.alarms
    assert (alarm.monitor, alarm.severity, alarm.where) == ("non_finite_activation", "warning", ("logarithm",))


def series(losses: list[float], gradients: list[float] | None = None) -> list:
    """What Spikes finds in made-up signals."""
    pairs = zip(losses, gradients or [1.0] * len(losses), strict=True)
    return told(Spikes(), [made(step, loss, [norm]) for step, (loss, norm) in enumerate(pairs)])


def made(step: int, loss: float, norms: list[float]) -> Signals:
    return Signals(step, loss, loss * loss, 32, 0.1, max(norms), list(norms), 0.01, 0.0)


def noise(seed: int, count: int) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "healthy",
    ["power_tails", "batch_of_one", "curriculum", "restarts", "adversarial", "plateau_then_drop", "negative"],
)
def test_odd_but_healthy_losses_are_no_spike(seed, healthy):
    count = 1200
    steps, z, u = torch.arange(count), noise(seed, count), noise(seed + 99, count)
    fall = 0.2 + 0.6 * torch.exp(-steps / 200.0)
    losses = {
        "power_tails": fall * torch.exp(0.3 * z) * (1 - torch.special.ndtr(u)).clamp_min(1e-3) ** -0.5,
        "batch_of_one": torch.exp(2.0 * z - 1.5),
        "curriculum": torch.where(steps % 300 < 150, fall, 0.75 * torch.ones(count)) * torch.exp(0.1 * z),
        "restarts": (0.1 + 0.6 * (1 - (steps % 240) / 240.0) ** 4) * torch.exp(0.1 * z),
        "adversarial": 1.2 + 0.8 * torch.sin(steps / 25.0) + 0.2 * z.abs(),
        "plateau_then_drop": torch.where(steps < 700, 0.69, 0.05) * torch.exp(0.02 * z),
        "negative": -2.0 + 3 * torch.exp(-steps / 100.0) + 0.3 * z,
    }[healthy]
    assert [finding for finding in series(losses.tolist()) if finding.severity == "critical"] == []


def test_gradient_that_jumps_with_the_loss_is_a_spike_and_without_it_none():
    gradients = (torch.exp(0.2 * noise(1, 120)) * torch.where(torch.arange(120) < 100, 1.0, 60.0)).tolist()
    flat = torch.exp(0.05 * noise(2, 120))
    rising = (flat * torch.where(torch.arange(120) < 100, 1.0, 1.3)).tolist()
    (finding,) = [one for one in series(rising, gradients) if one.severity == "critical"]
    assert (finding.monitor, finding.onset) == ("gradient_spike", 100)
    assert finding.step <= 106
    assert [one for one in series(flat.tolist(), gradients) if one.severity == "critical"] == []


def test_spikes_after_a_resume_find_what_an_uninterrupted_training_does():
    whole, first, second = Spikes(), Spikes(), Spikes()
    losses = (torch.exp(0.1 * noise(3, 120)) * torch.where(torch.arange(120) < 90, 1.0, 40.0)).tolist()
    found: list[list] = [[], []]
    for step, loss in enumerate(losses):
        if step == 92:
            second.load_state_dict(first.state_dict())
        seen = made(step, loss, [1.0])
        found[0].append(whole.after_backward(seen))
        found[1].append((first if step < 92 else second).after_backward(seen))
    assert found[0] == found[1]
    assert any(found[0])


def critical(losses: np.ndarray) -> list:
    return [found for found in series(losses.tolist()) if found.severity == "critical"]


@pytest.mark.parametrize("seed", range(3))
def test_loss_that_grows_slowly_or_in_some_batches_alone_is_a_spike(seed):
    usual = np.exp(0.2 * np.random.default_rng(seed).normal(size=400))
    steps = np.arange(400)
    slowly = usual * np.where(steps < 250, 1.0, 1.05 ** (steps - 250.0))
    in_some = usual * np.where((steps >= 250) & (steps % 4 > 0), 20.0, 1.0)
    for losses in (slowly, in_some):
        assert [found.monitor for found in critical(losses)][:1] == ["loss_spike"]
        assert critical(losses)[0].step <= 330
    assert critical(usual) == []


@pytest.mark.parametrize("seed", range(3))
def test_level_within_the_mean_of_losses_with_a_heavy_tail_is_no_spike_and_above_it_is(seed):
    """A row far off moves such a network, so that for some updates all batches lie above the usual median."""
    random = np.random.default_rng(seed)
    losses = 200 * np.exp(1.5 * random.normal(size=400))
    mean = losses[:120].mean()
    for above, monitors in ((0.9, []), (30.0, ["loss_spike"])):
        moved = losses.copy()
        moved[300:330] = above * mean * np.exp(0.05 * random.normal(size=30))
        assert [found.monitor for found in critical(moved)] == monitors


def test_checkpoint_from_before_there_were_bars_goes_on():
    old = {"values": [(step, 1.0 + step / 1e3) for step in range(100)], "bar": 2.0, "start": 1.0, "count": 100}
    spikes = Spikes()
    spikes.load_state_dict({"loss": old, "gradient": old, "sums": [], "until": -1})
    seen = [made(step, 1.0 if step < 200 else 30.0, [1.0]) for step in range(100, 220)]
    assert [found.monitor for found in told(spikes, seen) if found.severity == "critical"] == ["loss_spike"]


def trend(norms: list[list[float]], losses: list[float]) -> list:
    """What Trends finds in made-up signals, each shown as often as one is kept of."""
    trends = Trends(tuple(f"layer{number}" for number in range(len(norms[0]))))
    steps = range(KEEP_EVERY * len(norms))
    return told(trends, [made(step, losses[step // KEEP_EVERY], norms[step // KEEP_EVERY]) for step in steps])


def rows(count: int, *factors: float) -> list[list[float]]:
    """Norms that change by a factor a kept update, one a parameter."""
    return [[factor**number for factor in factors] for number in range(count)]


@pytest.mark.parametrize(
    ("factors", "loss", "monitor"),
    [
        ((0.7, 0.85, 1.0), 1.0, "vanishing_gradients"),
        ((0.7, 0.7, 0.7), 1.0, "vanishing_gradients"),
        ((1.2, 1.2, 1.2), 1.02, "exploding_gradients"),
        ((1.3, 1.0, 1.0), 1.02, "exploding_gradients"),
    ],
)
def test_gradients_that_shrink_or_grow_steadily_while_the_loss_does_not_fall_are_told(factors, loss, monitor):
    (finding,) = trend(rows(KEPT, *factors), [loss**number for number in range(KEPT)])
    assert finding.monitor == monitor
    assert "layer0" in finding.where


@pytest.mark.parametrize(
    ("factors", "loss"),
    [((0.8, 0.8, 0.8), 0.9), ((1.2, 1.2, 1.2), 0.99), ((0.99, 1.0, 1.01), 1.0), ((1e-9, 1.0, 1.0), 1.0)],
    ids=["converges", "leaves a plateau", "drifts", "never had any"],
)
def test_gradients_that_move_with_the_loss_are_no_trend(factors, loss):
    norms = rows(3 * KEPT, *factors) if factors[0] > 1e-6 else [[1e-9, 1.0, 1.0]] * (3 * KEPT)
    assert trend(norms, [loss**number for number in range(3 * KEPT)]) == []


class Saturates(nn.Module):
    """Sigmoids, one behind the other."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.network(inputs["numbers"]).squeeze(1)


@pytest.mark.parametrize("mechanism", ["head_fades", "units_saturate"])
def test_layer_whose_gradient_vanishes_is_named(mechanism):
    layers = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))

    def move(state: TrainState) -> None:
        last, first = state.parameters[4], state.parameters[0]
        with torch.no_grad():
            # What is behind it passes on less and less; or what it feeds is ever further from where it moves.
            last.mul_(0.9) if mechanism == "head_fades" else first.mul_(1.06)

    setup = replace(host("mlp"), network=lambda: Saturates(layers), learning_rate=1e-7)
    watch, _ = watched(setup, steps=250, after=move)
    (alarm,) = [alarm for alarm in watch.alarms if alarm.monitor == "vanishing_gradients"]
    assert "network.0.weight" in alarm.where


def rare_rows(
    seed: int, size: int, share: float = 0.006, blown_up_at: int | None = None, together_at: int | None = None,
    spread: float = 0.5,
) -> list[Signals]:  # fmt: skip
    """Batches of a trained network whose answers begin at the share of positives: most hold one of these or none.

    From `together_at` on the rows of eight updates are all positive.
    """
    generator, seen = np.random.default_rng(seed), []
    for step in range(500):
        positive = generator.random(size) < share
        if together_at is not None and together_at <= step < together_at + 8:
            positive[:] = True
        answers = np.clip(share * np.exp(generator.normal(0, spread, size)), 1e-6, 0.9)
        losses = np.where(positive, -np.log(answers), -np.log1p(-answers))
        if blown_up_at is not None and step >= blown_up_at:
            losses = 8 * losses + 5
        of_rows = {"loss": float(losses.mean()), "squared": float((losses**2).mean()), "rows": size}
        seen.append(signals(step)._replace(**of_rows))
    return seen


@pytest.mark.parametrize("size", [32, 128])
@pytest.mark.parametrize("seed", range(5))
def test_rare_positives_that_come_together_are_no_loss_spike(seed, size):
    spikes = Spikes()
    seen = [found for one in rare_rows(seed, size) if (found := spikes.after_backward(one))]
    assert [found for found in seen if found.severity == "critical"] == []


@pytest.mark.parametrize("size", [32, 128])
def test_rare_positives_whose_losses_blow_up_are_a_loss_spike(size):
    spikes = Spikes()
    seen = [found for one in rare_rows(0, size, blown_up_at=400) if (found := spikes.after_backward(one))]
    assert [found.monitor for found in seen if found.severity == "critical"] == ["loss_spike"]


@pytest.mark.parametrize("share", [0.15, 0.2, 0.24])
@pytest.mark.parametrize("seed", range(3))
def test_eight_positives_in_a_row_in_batches_of_one_are_no_loss_spike(seed, share):
    spikes = Spikes()
    rows = rare_rows(seed, 1, share, together_at=300, spread=0.1)[:308]
    seen = [found for one in rows if (found := spikes.after_backward(one))]
    assert [found for found in seen if found.severity == "critical"] == []


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_losses_of_one_or_two_rows_that_blow_up_are_a_loss_spike(seed, size):
    spikes = Spikes()
    seen = [found for one in rare_rows(seed, size, 0.2, blown_up_at=400) if (found := spikes.after_backward(one))]
    assert [found.monitor for found in seen if found.severity == "critical"] == ["loss_spike"]
