"""The example of fine-tuning in docs/how-to/training.md, as it stands there."""

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "training.md"


@pytest.fixture
def model(tmp_path) -> Any:
    page = PAGE.read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(# model\.py, in part\n.*?)```", page, flags=re.DOTALL)
    module = ModuleType("fine_tuned")
    module.__file__ = str(tmp_path / "model.py")
    exec(compile(code, module.__file__, "exec"), module.__dict__)
    return module


def backbone() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU())


@pytest.mark.parametrize("frozen", [True, False])
def test_example_of_fine_tuning_loads_freezes_and_has_two_rates(model, tmp_path, frozen):
    trained = backbone()
    torch.save(trained.state_dict(), Path(model.__file__).parent / "backbone.pt")
    network = model.FineTuned(model.load_backbone(backbone(), frozen), 8, 3)
    assert torch.equal(network.backbone[0].weight, trained[0].weight)  # pyright: ignore[reportIndexIssue]
    (optimizer,) = model.build_optimizers(network, {"learning_rate": 0.01, "weight_decay": 0.0})
    assert [group["lr"] for group in optimizer.param_groups] == ([0.01] if frozen else [0.01, 0.001])
    before = {name: value.clone() for name, value in network.state_dict().items()}
    network.train()
    network({"x": torch.randn(16, 4)}).square().mean().backward()
    optimizer.step()
    moved = {name for name, value in network.state_dict().items() if not torch.equal(value, before[name])}
    assert any(name.startswith("backbone") for name in moved) is not frozen
    assert "head.weight" in moved


def test_example_of_fine_tuning_refuses_weights_of_other_names(model):
    weights = {f"module.{name}": value for name, value in backbone().state_dict().items()}
    torch.save(weights, Path(model.__file__).parent / "backbone.pt")
    with pytest.raises(RuntimeError, match="Missing key"):
        model.load_backbone(backbone(), True)
