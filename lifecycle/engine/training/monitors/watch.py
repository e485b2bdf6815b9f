"""What looks at every update before it is applied, asks the monitors, and does what the policy says.

The loop calls `rate`, `before_update`, `may_apply` and `after_update`, in this order. What is decided follows from
numbers that are equal after a resume, and all that it needs is in every checkpoint.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from trainworthy.lifecycle.engine.training.monitors.base import Base
from trainworthy.lifecycle.engine.training.monitors.causes import context_of, diagnosed, of_alarms
from trainworthy.lifecycle.engine.training.monitors.closer_look import CloserLook, CloserLooks, NoLooks
from trainworthy.lifecycle.engine.training.monitors.game import as_in_a_game
from trainworthy.lifecycle.engine.training.monitors.heartbeat import Heartbeat
from trainworthy.lifecycle.engine.training.monitors.monitor import CurveMonitor, Finding, Monitor
from trainworthy.lifecycle.engine.training.monitors.non_finite import (
    COME_BACK,
    NonFinite,
    bad_parameters,
    finite,
)
from trainworthy.lifecycle.engine.training.monitors.policy import Policy, hardest
from trainworthy.lifecycle.engine.training.monitors.recorder import KEPT_SIGNALS, Recorder
from trainworthy.lifecycle.engine.training.monitors.spikes import Spikes
from trainworthy.lifecycle.engine.training.monitors.trends import Trends
from trainworthy.lifecycle.engine.training.monitors.true_gradient import NOTHING, GradientLook
from trainworthy.lifecycle.engine.training.monitors.updates import update_ratio
from trainworthy.lifecycle.engine.training.state import Recipe, TrainState, Update
from trainworthy.lifecycle.gates.monitor_words import cause_of
from trainworthy.lifecycle.protocol.signals import SAMPLE_EVERY, WINDOW, Sample, Signals
from trainworthy.lifecycle.protocol.training_figures import Alarm, CurvePoint
from trainworthy.lifecycle.spec.training import MonitorsSpec

# So many samples say that updates go along their gradients, if none says otherwise: the first has no momentum yet.
CONFIRMED = 2
# The newest closer looks, for who records what led to an alarm.
KEPT_SAMPLES = 5
# What a gradient that is no slope may bring about.
GRADIENT_EXPLAINS = cause_of("gradient_is_no_slope").explains
# The same finding again within so many updates is the same alarm, and so is what comes after MOST_OF_ONE of a monitor.
SAME_ALARM, MOST_OF_ONE = 50, 8


class Watch:
    """The monitors of one training. `monitors` are those beside what is not finite, spikes and trends.

    `recorder` keeps the updates and is told of every new alarm. `ended` is the alarm that ends the training here;
    `back_before` the update before which it has to go on then, None if the weights are good as they are. `game` is True
    of a loss whose value tells no progress (game.py). `looks` are the closer looks at the model, and `follows` says
    what becomes of weights that are not finite. `gradient` looks whether backward gives the slope of
    the loss: it is asked once, at the first critical alarm that this may explain.

    Whoever makes updates and cannot ask before they are applied calls `judge` and `sampled` alone.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        spec: MonitorsSpec,
        monitors: Sequence[Monitor],
        planned_steps: int,
        recorder: Recorder | None = None,
        heartbeat: Heartbeat | None = None,
        game: bool = False,
        looks: CloserLooks | NoLooks | None = None,
        follows: str = COME_BACK,
        gradient: Callable[[], GradientLook] | None = None,
    ) -> None:
        self._looks = looks or CloserLooks(model)
        self.parameters = tuple(name for name, _ in model.named_parameters())
        self._not_finite = NonFinite(self.parameters, follows)
        # True of a loss whose value tells no progress (game.py).
        self.adversarial = game
        other_monitors = (Spikes(), Trends(self.parameters), *monitors)
        self._monitors = (self._not_finite, *other_monitors)
        # Most can wait, and to call these at every update would take as long as what they do.
        each = [monitor for monitor in other_monitors if type(monitor).after_backward is not Base.after_backward]
        self._each = [monitor.after_backward for monitor in each]
        # Of the newest updates, those that no window has had yet.
        self._window: list[Signals] = []
        device = next((parameter.device.type for parameter in model.parameters()), "cpu")
        self.recorder, self._heartbeat = recorder or Recorder(device), heartbeat
        self.policy = Policy(spec, planned_steps)
        self.alarms: list[Alarm] = []
        self.samples: deque[Sample] = deque(maxlen=KEPT_SAMPLES)
        self.ended: Alarm | None = None
        self.back_before: int | None = None
        self._look: CloserLook | None = None
        self._rate = 0.0
        self._newest: Signals | None = None
        # Of this model alone, where several are trained by turns.
        self._rates: deque[float] = deque(maxlen=KEPT_SIGNALS)
        self._recipe: Recipe | None = None
        self._gradient = gradient
        self._known_gradient: GradientLook | None = None
        # Of the newest sample before a resume.
        self._update_ratio: float | None = None
        # Samples of which the update went along its gradient, and against it.
        self._uphill, self._downhill = 0, 0

    @contextmanager
    def heart(self) -> Iterator[None]:
        """The heartbeat's thread runs inside."""
        if self._heartbeat is None:
            yield
            return
        self._heartbeat.start()
        try:
            yield
        finally:
            self._heartbeat.close()

    def rate(self, state: TrainState, recipe: Recipe) -> float:
        """The learning rate of this update."""
        self._recipe = recipe
        self._rate = recipe.learning_rate(state.step) * self.policy.rate_factor(state.step)
        return self._rate

    def before_update(self, state: TrainState) -> bool:
        """False if the batch is on the skip list."""
        if state.step in self.policy.passed_over:
            return False
        if self._heartbeat is not None:
            self._heartbeat.begin(state.step)
        if state.step % SAMPLE_EVERY == 0:
            self._look = self._looks.begin(state)
        self.recorder.before_update()
        return True

    def may_apply(self, state: TrainState, update: Update, rows: int, batch: int | None = None) -> bool:
        """True if the optimizer may make the update; a scaler's overflow is the loop's to leave out, and no alarm."""
        signals = self.recorder.add(
            state.clock, state.step, update.loss, update.squared, rows, self._rate, update.grad_norm,
            update.grad_norms, batch,
        )  # fmt: skip
        return self.judge(state, signals)

    def judge(self, state: TrainState, signals: Signals) -> bool:
        """Ask the monitors of an update, after its backward pass; True if it may be applied."""
        self._newest = signals
        self._rates.append(signals.learning_rate)
        if not finite(signals.loss, signals.grad_norm):
            if self._scale_may_recover(state, signals):
                return True
            self._act(state, [self._why(signals)])
            return False
        findings = [finding for look in self._each if (finding := look(signals)) is not None]
        self._window.append(signals)
        if len(self._window) == WINDOW:
            updates, self._window = self._window, []
            findings += [
                finding for monitor in self._monitors if (finding := monitor.after_window(updates)) is not None
            ]
        if self.adversarial:
            findings = as_in_a_game(findings)
        return not findings or self._act(state, findings)

    def after_update(self, state: TrainState, update: Update) -> Alarm | None:
        """The alarm that ends the training here, after the closer look at this update, if it was one."""
        if self._heartbeat is not None:
            self._heartbeat.end()
            while self._heartbeat.hangs:
                self._noted(state, self._heartbeat.hangs.popleft())
        look, self._look = self._look, None
        if update.skipped:
            # None of its rows was trained on: they count in no window.
            state.row_losses = None
        if look is not None:
            look.leave()
            if not update.skipped and finite(update.loss, update.grad_norm):
                self.sampled(state, look.end())
        return self.ended

    def act_on(self, state: TrainState, finding: Finding) -> Alarm | None:
        """The alarm that ends the training by what somebody else has found of it, if one does."""
        self._act(state, [finding])
        return self.ended

    @property
    def has_judged(self) -> bool:
        """True once an update was shown to `judge`."""
        return self._newest is not None

    def sampled(self, state: TrainState, sample: Sample) -> None:
        """Ask the monitors of a closer look at the newest update."""
        assert self._newest is not None
        self.samples.append(sample)
        self._uphill, self._downhill = self._uphill + (sample.along > 0), self._downhill + (sample.along < 0)
        newest = self._newest
        findings = [
            finding for monitor in self._monitors if (finding := monitor.after_sample(sample, newest)) is not None
        ]
        if findings:
            self._act(state, findings)

    def after_points(self, state: TrainState, points: Sequence[CurvePoint]) -> None:
        """Show the points that a window closed to the monitors of the curve."""
        curves = [monitor for monitor in self._monitors if isinstance(monitor, CurveMonitor)]
        findings = [finding for monitor in curves if (finding := monitor.after_points(points)) is not None]
        if findings:
            self._act(state, findings)

    def weights_are_bad(self, state: TrainState) -> Alarm:
        """The alarm for weights that were found not finite before a checkpoint."""
        bad = bad_parameters(state.step, self._not_finite.clean, self._bad_names(), self._not_finite.follows)
        self._act(state, [bad])
        assert self.ended is not None
        return self.ended

    def go_on_from(self, before: Watch) -> None:
        """Take over what a training has learned that goes back; the monitors are as they were then."""
        self.policy, self.alarms = before.policy, before.alarms
        self._known_gradient = before._known_gradient

    def state_dict(self) -> dict[str, Any]:
        """As text: to copy thousands of numbers one by one would hold up the training at every checkpoint."""
        held = {
            "policy": self.policy.state_dict(),
            "update_ratio": self._ratio(),
            "slopes": [self._uphill, self._downhill],
            "window": self._window,
            "game": self.adversarial,
            "gradient": self._known_gradient,
            "alarms": [alarm.model_dump(mode="json") for alarm in self.alarms],
            "monitors": {monitor.name: monitor.state_dict() for monitor in self._monitors},
        }
        return {"json": json.dumps(held)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what state_dict gave; a monitor that it does not know starts anew."""
        held = json.loads(state["json"])
        self.policy.load_state_dict(held["policy"])
        self._update_ratio = held.get("update_ratio")
        self._uphill, self._downhill = held.get("slopes", (0, 0))
        self._window = [Signals(*fields) for fields in held.get("window", ())]
        self.adversarial = held.get("game", self.adversarial)
        self._known_gradient = GradientLook(*held["gradient"]) if held.get("gradient") else None
        self.alarms = [Alarm(**alarm) for alarm in held["alarms"]]
        for monitor in self._monitors:
            if monitor.name in held["monitors"]:
                monitor.load_state_dict(held["monitors"][monitor.name])

    def _scale_may_recover(self, state: TrainState, signals: Signals) -> bool:
        return finite(signals.loss) and state.scaler is not None and not state.scaler.exhausted

    def _why(self, signals: Signals) -> Finding:
        """What is not finite, weights first: with these every batch would be. The update before this one made them."""
        bad = self._bad_names()
        if bad:
            return bad_parameters(signals.step, max(0, signals.step - 1), bad, self._not_finite.follows)
        finding = self._not_finite.after_backward(signals)
        assert finding is not None
        return finding

    def _bad_names(self) -> list[str]:
        return self._looks.not_finite()

    def _act(self, state: TrainState, findings: list[Finding]) -> bool:
        """Note the alarms and do what the hardest asks for; True if the update may be applied."""
        alarms = [self._noted(state, finding, findings) for finding in findings]
        decided = hardest([alarm.action for alarm in alarms])
        alarm, finding = next(pair for pair in zip(alarms, findings, strict=True) if pair[0].action == decided)
        self.policy.taken(decided, state.step, finding.onset)
        if decided == "skip_batch" and any(alarm.action == "lower_rate" for alarm in alarms):
            self.policy.taken("lower_rate", state.step, finding.onset)
        if decided == "lower_rate" and finding.monitor.startswith("non_finite"):
            self.policy.taken("skip_batch", state.step, finding.onset)
        if decided in ("stop", "roll_back"):
            self.ended = alarm
            bad_weights = finding.monitor == "non_finite_parameter"
            self.back_before = finding.onset if decided == "roll_back" or bad_weights else None
        return decided in ("warn", "lower_rate")

    def _noted(self, state: TrainState, finding: Finding, together: Sequence[Finding] = ()) -> Alarm:
        """The finding as an alarm: a new one, or one that is seen again. `together` was found at the same update."""
        action, why_other = self.policy.decide(finding)
        mine = [number for number, alarm in enumerate(self.alarms) if alarm.monitor == finding.monitor]
        for number in mine:
            if self.alarms[number].step <= finding.step <= self.alarms[number].last_step:
                # Seen before the training went back to here.
                return self.alarms[number]
        same = [number for number in mine if self.alarms[number].action == action]
        if same and action in ("warn", "skip_batch"):
            last = self.alarms[same[-1]]
            if finding.step - last.last_step <= SAME_ALARM or len(same) >= MOST_OF_ONE:
                again = last.model_copy(update={"count": last.count + 1, "last_step": finding.step})
                self.alarms[same[-1]] = again
                return again
        rows, rates = self.recorder.rows(state.step, state.row_losses), list(self._rates) or [self._rate]
        look = self._gradient_look(finding)
        context = context_of(self._recipe, state.step, rates, self._ratio(), rows.not_finite, self.adversarial)
        ascends = self._uphill >= CONFIRMED and not self._downhill
        context = replace(context, gradient_wrong=look.wrong, ascends=ascends)
        diagnosis = diagnosed(finding, [*of_alarms(self.alarms), *together], context)
        evidence = (
            f"{finding.evidence}; seen beside it: {diagnosis.also_explains}"
            if diagnosis.also_explains
            else finding.evidence
        )
        evidence += f"; {look.description}" if look.description else ""
        alarm = Alarm(
            step=finding.step, onset=finding.onset, last_step=finding.step, monitor=finding.monitor,
            severity=finding.severity, rule=diagnosis.rule, symptom=finding.symptom,
            cause=diagnosis.cause, fix=diagnosis.fix, action=action,
            evidence=f"{evidence}; stopped, since {why_other}" if why_other else evidence, row_keys=rows.keys,
            where=finding.where,
        )  # fmt: skip
        self.alarms.append(self.recorder.record(alarm, self.samples, self.parameters, self.policy.state_dict()))
        return self.alarms[-1]

    def _gradient_look(self, finding: Finding) -> GradientLook:
        """What is known of the gradient where it may be the cause; it is asked at the first critical finding."""
        if finding.monitor not in GRADIENT_EXPLAINS:
            return NOTHING
        if self._known_gradient is None and self._gradient is not None and finding.severity == "critical":
            self._known_gradient = self._gradient()
        return self._known_gradient or NOTHING

    def _ratio(self) -> float | None:
        return update_ratio(self.samples[-1]) if self.samples else self._update_ratio
