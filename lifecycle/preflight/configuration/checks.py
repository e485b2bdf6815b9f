"""What is declared, held against itself, the machine and the stores: before the worker, in it, and after it."""

from __future__ import annotations

from lifecycle.preflight.check import Check
from lifecycle.preflight.configuration.compiles import compiles
from lifecycle.preflight.configuration.declared import Host, checkpoints_survive, steps_add_up, stores_are_reachable
from lifecycle.preflight.configuration.focal import loss_is_a_log_likelihood
from lifecycle.preflight.configuration.kernels import runs_in_declared_precision
from lifecycle.preflight.configuration.parameters import optimizers_hold_the_parameters, precision_fits
from lifecycle.preflight.configuration.recomputed import recomputes_the_same
from lifecycle.preflight.configuration.room import checkpoints_have_room
from lifecycle.preflight.configuration.schedule import schedule_fits
from lifecycle.preflight.sample import Sample
from lifecycle.preflight.subject import Subject
from lifecycle.protocol.jobs import PreflightJob
from lifecycle.training.techniques.compiled import FIX

HOST_CHECKS: tuple[Check[Host], ...] = (
    Check(
        "configuration.steps",
        question="Do updates times their rows make up the rows times the epochs?",
        symptom="the run takes far fewer or far more epochs than declared, or all rows are one update",
        cause="batch size, accumulation and epochs do not fit the number of rows",
        fix="declare a smaller training.batch_size or training.accumulate, or the epochs that are meant",
        look=steps_add_up,
        on_device=False,
    ),
    Check(
        "configuration.stores_reachable",
        question="Can results be written where they belong, before they cost anything?",
        symptom="a run trains for hours and then fails at its first write",
        cause="a server that is down, a wrong address, or a folder without the right to write",
        fix="mend the store that is named: trainworthy doctor looks at each of them",
        look=stores_are_reachable,
        on_device=False,
    ),
)

# Before one batch and all else that runs the network: it would fail for the same cause.
KERNELS: Check[Subject] = Check(
    "configuration.kernels",
    question="Does every layer run in the declared precision on this device?",
    symptom="the run ends at its first update, in a layer whose kernel does not exist for 16-bit numbers",
    cause="torch has no kernel of this layer for the declared type on this device, or its code mixes types of numbers",
    fix="set training.precision: fp32, or run the layer that is named in fp32",
    look=runs_in_declared_precision,
)

CHECKS: tuple[Check[Subject], ...] = (
    Check(
        "configuration.learning_rate_schedule",
        question="Is the learning rate of every planned step above zero, and its warm-up shorter than the run?",
        symptom="the loss stops falling long before the run ends, or never starts to fall",
        cause="a schedule that is built for another number of steps",
        fix="build the schedule from the `steps` that learning_rate is given, or correct training.schedule",
        look=schedule_fits,
        on_device=False,
    ),
    Check(
        "configuration.optimizer_parameters",
        question="Do the optimizers hold each trainable parameter once, and is what is frozen claimed?",
        symptom="the loss falls slowly and to a worse value; some weights never change",
        cause="parameters left out of the optimizers, frozen and forgotten, or those of another copy of the model",
        fix="give the optimizers the trainable parameters of the model that they are given, each once",
        look=optimizers_hold_the_parameters,
    ),
    Check(
        "configuration.precision",
        question="Does the device have the declared precision, and are the weights kept in 32 bits?",
        symptom="steps take several times as long as in fp32, or the loss stalls at a plateau",
        cause="bfloat16 that the device only emulates, or weights that are stored in half precision",
        fix="set training.precision: fp32, or train on a device with bfloat16",
        look=precision_fits,
        severity="warning",
    ),
    Check(
        "configuration.activation_checkpointing",
        question="Are the modules that training.activation_checkpointing names recomputed, to the same gradients?",
        symptom="memory stays as it was, or the loss falls slower than without checkpointing",
        cause="a module that keeps a state outside its buffers, so that its second pass is another one than its first",
        fix="hold such a state in buffers, or leave the module out of training.activation_checkpointing",
        look=recomputes_the_same,
    ),
    Check(
        "configuration.focal_loss",
        question="With training.focal_gamma: is the loss of a row minus the logarithm of the probability of its label?",
        symptom="the loss falls and predictions are wrong, or rows that are far from right count least",
        cause="a loss with smoothed labels or own weights, a squared error, or a sum over several terms",
        fix="let loss_fn be the plain log loss, as binary_cross_entropy_with_logits, or remove training.focal_gamma",
        look=loss_is_a_log_likelihood,
    ),
    Check(
        "configuration.compile",
        question="With training.compile: is there a compiler, and are compiled updates those of the plain model?",
        symptom="the training ends at its first update for want of a compiler, or is slower than without",
        cause="no C++ compiler on the machine, or a forward pass that has to be compiled anew with every batch",
        fix=FIX,
        look=compiles,
    ),
)

# These see the job and its sample.
JOB_CHECKS: tuple[Check[tuple[PreflightJob, Sample]], ...] = (
    Check(
        "configuration.checkpoint_space",
        question="Is there room for twice the checkpoints and the artifact?",
        symptom="the run breaks with a full disk at a checkpoint, after hours",
        cause="a disk that is nearly full, or a model whose checkpoints are larger than thought",
        fix="free space, or put the state folder on a larger disk and name it in TRAINWORTHY_VAR",
        look=checkpoints_have_room,
        on_device=False,
    ),
)

AFTER_CHECKS: tuple[Check[Host], ...] = (
    Check(
        "configuration.spot_checkpoints",
        question="On a spot machine: is there a checkpoint that survives it at least every 15 minutes?",
        symptom="hours of work are lost each time the machine is taken away",
        cause="checkpoints that are far apart, or on a disk that goes with the machine",
        fix="leave training.checkpoint_every_steps out, or lower it",
        look=checkpoints_survive,
        on_device=False,
    ),
)
