"""The first operation of an update, forward or backward, that made a number which is not finite out of finite ones.

Every operation's output is looked at. torch's own anomaly detection names the backward node of a NaN and knows no
infinity; here it only remembers which line made which node. A mask of -inf is no fault, and neither is an infinity that
nothing comes of: what counts is where the loss's or the gradient's own came from.
"""

from __future__ import annotations

import math
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def number_tensors(values: Any) -> list[Tensor]:
    """The tensors of numbers that can be infinite, in nested values."""
    return [
        value
        for value in tree_leaves(values)
        if isinstance(value, torch.Tensor)
        and (value.is_floating_point() or value.is_complex())
        and value.layout == torch.strided
    ]


def is_finite(tensor: Tensor) -> bool:
    """True if every number is."""
    return bool(tensor.isfinite().all())


def has_nan(tensor: Tensor) -> bool:
    """True if a number is NaN."""
    return bool(tensor.isnan().any())


def range_text(given: Sequence[Tensor]) -> str:
    """What the finite numbers of these lie between, to follow a comma; "" if there are none."""
    finite = [part for tensor in given if (part := tensor[tensor.isfinite()]).numel() and not part.is_complex()]
    if not finite:
        return ""
    low, high = min(float(part.min()) for part in finite), max(float(part.max()) for part in finite)
    return f", given {low:.4g}" if low == high else f", given numbers from {low:.4g} to {high:.4g}"


def bad_kind(tensor: Tensor) -> str:
    """NaN, else inf."""
    return "NaN" if has_nan(tensor) else "inf"


def place_of(tensor: Tensor) -> int:
    """Where the storage lies: the same for views of it."""
    return tensor.untyped_storage().data_ptr()


def is_whole(tensor: Tensor) -> bool:
    """True if the tensor is all of its storage."""
    return tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()


# Under deterministic algorithms torch fills what these give with NaN, for others to write over.
_EMPTY = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "_empty_affine_quantized"}
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)')
_MODULE = "trainworthy_module"
# Not finite on purpose: a mask, or memory that nothing was written to yet.
_MEANT = -1


Phase = Literal["before", "forward", "backward", "optimizer", "norm"]


@dataclass(frozen=True)
class Birth:
    """An operation that gave NaN or an infinity. `parent` is the birth of what it was given, None if that was finite.

    `line` is model.py's, of the forward pass also for an operation of backward, whose `node` is autograd's.
    """

    operation: str
    gave: str
    phase: Phase
    module: str
    line: str
    node: str
    evidence: str
    parent: int | None


class Births(TorchDispatchMode):
    """Looks at all operations while it is entered. `sources` are tensors that the update starts from, by name."""

    def __init__(self, folder: Path, sources: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.births: list[Birth] = []
        self.modules: list[str] = []
        self._folder = folder.resolve()
        # By where the storage lies: the birth that its numbers come from.
        self._origin: dict[int, int] = {}
        for name, tensor in sources.items():
            if not is_finite(tensor):
                self._origin[place_of(tensor)] = len(self.births)
                what = f"{name} was not finite before the update"
                self.births.append(Birth("none", bad_kind(tensor), "before", "", "", "", what, None))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = number_tensors((args, kwargs))
        places = {place_of(tensor) for tensor in given}
        changed = number_tensors(_written(func, args, kwargs))
        before = {place: self._origin[place] for place in places if place in self._origin}
        result = func(*args, **(kwargs or {}))
        written = {place_of(tensor) for tensor in changed}
        for tensor in (*number_tensors(result), *changed):
            place = place_of(tensor)
            if not is_finite(tensor):
                self._origin[place] = self._of(func, args, kwargs, given, before, written | {place}, tensor)
            elif place not in places or is_whole(tensor):
                self._origin.pop(place, None)
        return result

    def first(self, tensors: Sequence[Tensor]) -> Birth | None:
        """Where the first of these that is not finite comes from; None if all are finite."""
        for tensor in tensors:
            if not is_finite(tensor):
                origin = self._origin.get(place_of(tensor), _MEANT)
                while origin != _MEANT and (parent := self.births[origin].parent) is not None:
                    origin = parent
                return None if origin == _MEANT else self.births[origin]
        return None

    def _of(
        self, func: Any, args: Any, kwargs: Any, given: list[Tensor], before: Mapping[int, int], over: set[int],
        made: Tensor,
    ) -> int:  # fmt: skip
        """The birth that a bad output comes from: a new one, unless it was given as it is.

        What was written `over` can't be looked at any more, all weights of a fused optimizer at once, but where it came
        from is known.
        """
        bad = [t for t in given if (place_of(t) in before if place_of(t) in over else not is_finite(t))]
        origins = [before.get(place_of(tensor), _MEANT) for tensor in bad]
        known = next((origin for origin in origins if origin != _MEANT), None)
        if not bad:
            return _MEANT if _meant(func, args, kwargs) else self._born(func, given, over, made, None)
        given_nan = any(has_nan(t) for t in bad if place_of(t) not in over)
        if has_nan(made) and not given_nan and place_of(made) not in before:
            return self._born(func, given, over, made, known)
        return _MEANT if known is None else known

    def _born(self, func: Any, given: list[Tensor], over: set[int], made: Tensor, parent: int | None) -> int:
        node: Any = torch._C._current_autograd_node()
        dtype = str(made.dtype).removeprefix("torch.")
        evidence = (
            f"{bad_kind(made)} in {dtype}{range_text([tensor for tensor in given if place_of(tensor) not in over])}"
        )
        module = self.modules[-1] if self.modules else ""
        self.births.append(
            Birth(
                operation=func.name().removeprefix("aten::").partition(".")[0],
                gave=bad_kind(made),
                phase=_phase(node),
                module=module if node is None else str(node.metadata.get(_MODULE, "")),
                line=self._line_here() if node is None else self._line_of(node),
                node="" if node is None else node.name(),
                evidence=evidence,
                parent=parent,
            )
        )
        return len(self.births) - 1

    def _line_here(self) -> str:
        frame = sys._getframe(1)
        while frame is not None:
            if line := self._own(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name):
                return line
            frame = frame.f_back
        return ""

    def _line_of(self, node: Any) -> str:
        """The line of the forward pass that made a node."""
        text = "".join(node.metadata.get("traceback_", []))
        lines = [self._own(hit["file"], int(hit["line"]), hit["name"]) for hit in _FRAME.finditer(text)]
        return next((line for line in reversed(lines) if line), "")

    def _own(self, file: str, line: int, name: str) -> str:
        path = Path(file)
        if not path.is_relative_to(self._folder):
            return ""
        return f"{path.relative_to(self._folder).as_posix()}:{line} in {name}"


@contextmanager
def watched(model: torch.nn.Module, folder: Path, sources: Mapping[str, Tensor]) -> Iterator[Births]:
    """Look at all that the body computes with the model of a use case's folder."""
    births = Births(folder, sources)
    handles = []
    for name, module in model.named_modules():
        label = f"{name or 'the model'} ({type(module).__name__})"
        handles.append(module.register_forward_pre_hook(_enter(births, label), prepend=True))
        handles.append(module.register_forward_hook(_leave(births, label), always_call=True))
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Anomaly Detection has been enabled")
            with torch.autograd.detect_anomaly(check_nan=False), births:
                yield births
    finally:
        for handle in handles:
            handle.remove()


def _enter(births: Births, label: str) -> Callable[..., None]:
    def enter(module: torch.nn.Module, given: Any) -> None:
        births.modules.append(label)

    return enter


def _leave(births: Births, label: str) -> Callable[..., None]:
    def leave(module: torch.nn.Module, given: Any, made: Any) -> None:
        births.modules.pop()
        _name_nodes([tensor.grad_fn for tensor in number_tensors(made) if tensor.grad_fn is not None], label)

    return leave


def _name_nodes(nodes: list[Any], module: str) -> None:
    """Let autograd's nodes know their module: the innermost is told first, and its name stays."""
    waiting = nodes
    while waiting:
        node = waiting.pop()
        if _MODULE not in node.metadata:
            node.metadata[_MODULE] = module
            waiting += [following for following, _ in node.next_functions if following is not None]


def _phase(node: Any) -> Phase:
    """Backward has a node, and only what an optimizer does has its file among the callers."""
    if node is not None:
        return "backward"
    frame = sys._getframe(1)
    while frame is not None:
        if "torch/optim/" in frame.f_code.co_filename:
            return "optimizer"
        frame = frame.f_back
    return "forward"


def _written(func: Any, args: Any, kwargs: Any) -> list[Any]:
    """The arguments that an operation writes to: some give nothing back."""
    given = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | (kwargs or {})
    written = [
        argument.name
        for argument in func._schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return [given[name] for name in written if name in given]


def _meant(func: Any, args: Any, kwargs: Any) -> bool:
    """True for memory that is to be filled, and for an infinity that somebody wrote down, as a mask's."""
    if func.name().removeprefix("aten::").partition(".")[0] in _EMPTY:
        return True
    if _phase(None) == "optimizer":
        # A learning rate is no mask.
        return False
    plain = (value for value in tree_leaves((args, kwargs)) if isinstance(value, float))
    return not all(math.isfinite(value) for value in plain)
