"""`trainworthy check`: healthy use cases pass, and everything that is wrong is told at once."""

import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import yaml
from toy_project import ROOT

from tests.lifecycle import report_records
from trainworthy.lifecycle.errors import Problem
from trainworthy.lifecycle.gates.catalogue import CATALOGUE
from trainworthy.lifecycle.protocol.results import PreflightResult
from trainworthy.lifecycle.protocol.trial import Trial
from trainworthy.lifecycle.storage.state import StateFolder
from trainworthy.pipeline import check, quick
from trainworthy.pipeline.check import Part, contract_of, parts_text
from trainworthy.pipeline.cli import main
from trainworthy.pipeline.missing_task import with_line
from trainworthy.resources.worker_process import run_worker


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A copy of the toy's project; the state folder does not exist."""
    shutil.copytree(ROOT / "tests" / "toy", tmp_path / "project", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("TRAINWORTHY_USE_CASES", str(tmp_path / "project" / "use_cases"))
    monkeypatch.setenv("TRAINWORTHY_VAR", str(tmp_path / "state"))
    return tmp_path / "project" / "use_cases" / "toy"


def edit(folder, name, old, new):
    path = folder / name
    assert path.read_text().count(old) == 1
    path.write_text(path.read_text().replace(old, new))


@pytest.mark.parametrize("name", ["toy", "flight_delays"])
def test_check_of_a_healthy_use_case_is_well_and_writes_nothing(toy, monkeypatch, name, capsys):
    if name == "flight_delays":
        monkeypatch.setenv("TRAINWORTHY_USE_CASES", str(ROOT / "use_cases"))
    assert main(["check", name]) == 0
    out = capsys.readouterr().out
    assert out.count("✓") == 10
    assert "✗" not in out
    assert f"trainworthy train {name} --preflight" in out
    assert "references" not in out
    assert not (toy.parents[2] / "state").exists()


def test_quick_check_asks_the_network_without_a_snapshot_and_fails_for_a_planted_fault(toy, capsys):
    assert main(["check", "--quick", "--verbose", "toy"]) == 0
    out = capsys.readouterr().out
    assert "✓ wiring" in out
    assert "made from the contract" in out
    assert "passed: gradients, gradient_is_slope" in out
    (left,) = (line for line in out.splitlines() if line.startswith("– left out"))
    assert [
        name
        for name in ("overfit", "learning_rate", "leakage", "trainworthy train toy --preflight")
        if name not in left
    ] == []
    # Each check of preflight is named somewhere: as passed, as not applicable, or as left out.
    untold = [
        check.id
        for check in CATALOGUE
        if check.family != "trainer"
        and not any(name in out for name in (check.id, check.id.partition(".")[2]))
        and check.family not in left
    ]
    assert untold == []
    edit(toy, "model.py", "return self.layers(torch.cat(", "return torch.sigmoid(self.layers(torch.cat(")
    edit(toy, "model.py", "dim=1)).squeeze(1)", "dim=1))).squeeze(1)")
    assert main(["check", "--quick", "toy"]) == 1
    first, *others = capsys.readouterr().out.splitlines()
    # What is wrong comes first, with its fix; what is well takes one line.
    assert first.startswith("✗ wiring")
    assert "    wiring.logits: " in others[0]
    assert others[1].startswith("        fix: ")
    (well,) = (line for line in others if line.startswith("✓"))
    assert "model.py" in well
    assert "passed: " not in "".join(others)
    assert not (toy.parents[2] / "state").exists()


def test_quick_check_finds_what_the_plain_one_finds(toy, capsys):
    """Rows that change their order are no matter of the network."""
    edit(
        toy,
        "model.py",
        "def to_tensors(rows, preprocessing):\n",
        "def to_tensors(rows, preprocessing):\n    rows = rows[::-1]\n",
    )
    assert main(["check", "--quick", "toy"]) == main(["check", "toy"]) == 1
    quick_told, plain = capsys.readouterr().out.split("✗ to_tensors")[1:]
    same = [text.split("\n", 2)[1].strip() for text in (quick_told, plain)]
    assert "of a row changes with the other rows of its batch" in same[0]
    assert same[0] == same[1]


@pytest.mark.parametrize(
    ("column", "role", "fix"),
    [
        ("row_id", "key", "primaryKey: true may stay beside that"),
        ("score", "target_source", "the label is no input"),
        ("day", "other", "trainworthy contract review toy --column day --known PT0S"),
        ("when", "event_time", "gets a column of its own"),
    ],
)
def test_column_of_another_role_that_model_py_reads_is_told_with_its_role_by_both_checks(
    toy, capsys, column, role, fix
):
    edit(toy, "model.py", "def to_tensors(rows, preprocessing):\n",
         f"def to_tensors(rows, preprocessing):\n    rows['{column}']\n")  # fmt: skip
    assert main(["check", "toy"]) == main(["check", "--quick", "toy"]) == 1
    plain, quick_told = capsys.readouterr().out.split("✗ to_tensors")[1:]
    told = plain.split("\n", 3)[1:3]
    assert f"{column!r} has the role {role}" in told[0]
    assert fix in told[1]
    assert quick_told.split("\n", 3)[1:3] == told
    assert "fix the functions of model.py first" in quick_told


def test_column_with_the_role_feature_that_is_a_key_too_is_an_input(toy, capsys):
    path = toy / "contract.yaml"
    text = path.read_text()
    start = text.index("customProperties", text.index("name: row_id,"))
    feature = "{property: role, value: feature}, {property: availableAt, value: PT0S}"
    path.write_text(text[:start] + text[start:].replace("{property: role, value: key}", feature, 1))
    edit(toy, "model.py", "def to_tensors(rows, preprocessing):\n",
         "def to_tensors(rows, preprocessing):\n    rows['row_id']\n")  # fmt: skip
    contract = contract_of(toy)
    assert contract is not None
    assert contract.primary_key == ("row_id",)
    assert "row_id" in contract.feature_columns
    assert main(["check", "toy"]) == 0, capsys.readouterr().out


def test_quick_check_of_a_snapshot_says_in_brief_whose_rows_they_are(toy, monkeypatch):
    """A count of rows has a comma, and a family's name may have any word."""
    state, contract = StateFolder(toy.parents[2] / "state"), contract_of(toy)
    assert contract is not None
    columns = {"feature_columns": contract.feature_columns, "label": contract.label.name}
    snapshot = report_records.snapshot().model_copy(update=columns)
    store = SimpleNamespace(newest=lambda use_case, step: snapshot)
    monkeypatch.setattr(quick, "records_of", lambda settings: store)
    trial = Trial(check="inputs.finite", status="pass", evidence="finite")
    answer = PreflightResult(memory=None, seconds=None, device="cpu", trials=(trial, trial))
    jobs = []
    monkeypatch.setattr(quick, "run_worker", lambda job: (jobs.append(job), answer)[1])
    # Its files are gone: then rows are made.
    state.root.mkdir()
    told = parts_text("toy", quick.quick_parts("toy"), 1.0, brief=True)
    assert "rows (made from the contract), inputs (2 checks)" in told
    for name in ("training", "validation"):
        path = state.absolute(snapshot.splits[name].file.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    parts = quick.quick_parts("toy")
    assert "rows (of the newest snapshot), inputs (2 checks)" in parts_text("toy", parts, 1.0, brief=True)
    assert f"up to 2,000 of the {snapshot.splits['training'].rows:,} training rows" in parts_text("toy", parts, 1.0)
    assert [bool(job.training_file) for job in jobs] == [False, True]


def test_brief_parts_are_what_is_wrong_what_is_open_what_is_well_and_what_is_left():
    parts = [
        Part("use_case.yaml", "dataset a@v1"),
        Part("rows", untried="no labels"),
        Part("start", "2 checks; passed: a, b", brief="2 checks"),
        Part("inputs", "3 checks\n    warning inputs.scaled: far", open_checks=1),
        Part("model.py", problems=(Problem("model.py", "no loss_fn", "define it"),)),
        Part("left out", "a, b, c", asked=False, brief="3 checks"),
    ]
    assert parts_text("toy", parts, 1.0, brief=True).splitlines() == [
        "✗ model.py",
        "    model.py: no loss_fn",
        "        fix: define it",
        "– rows      not tried: no labels",
        "! inputs    3 checks",
        "    warning inputs.scaled: far",
        "✓ 2 well: use_case.yaml, start (2 checks)",
        "– left out: 3 checks",
        "",
        "1 problem in toy, in 1.0 s",
    ]
    left = parts_text("toy", [parts[0], parts[1]], 1.0, brief=True).splitlines()[-1]
    assert left == "no problem found in toy, but not all was tried (rows), in 1.0 s"
    # In full every part has its line, in order.
    full = [line.split()[1] for line in parts_text("toy", parts, 1.0).splitlines() if line and line[0] in "✓✗!–"]
    assert full == ["use_case.yaml", "rows", "start", "inputs", "model.py", "left"]


def test_check_tells_everything_at_once(toy, capsys):
    edit(toy, "use_case.yaml", "owner:", "ownr:")
    edit(toy, "use_case.yaml", "run_usd: 0.5", "run_usd: 0")
    edit(toy, "model.py", 'reduction="none"', 'reduction="mean"')
    edit(toy, "model.py", "return torch.sigmoid(outputs)", "return outputs * 100")
    (toy / "dataset.py").unlink()
    assert main(["check", "toy"]) == 1
    out = capsys.readouterr().out
    for text in ("did you mean 'owner'?", "run_usd", "dataset.py: the file is missing", "64 rows became ()",
                 "outside [0, 1]", "in loss_fn", "in predict", "– references"):  # fmt: skip
        assert text in out, out
    assert out.splitlines()[-1].startswith("5 problems in toy")


@pytest.mark.parametrize(
    ("name", "old", "new", "told"),
    [
        ("use_case.yaml", "version: v1", "version: v7", ("no such published version", "v1, v2")),
        ("use_case.yaml", "sku: local-2cpu", "sku: local-3cpu", ("no price", "did you mean 'local-2cpu'?")),
        ("use_case.yaml", "target: positive", "target: positiv", ("is not the contract's label",)),
    ],
)
def test_check_of_a_name_that_is_unknown_still_tries_the_functions(toy, name, old, new, told, capsys):
    edit(toy, name, old, new)
    assert main(["check", "toy"]) == 1
    out = capsys.readouterr().out
    assert all(text in out for text in told), out
    assert "✓ predict" in out


def test_check_tells_mistakes_of_the_files_before_it_tries_the_functions_and_once(toy, capsys, monkeypatch):
    """A process imports torch for them, which takes seconds."""
    edit(toy, "use_case.yaml", "owner:", "ownr:")
    before = []
    monkeypatch.setattr(check, "run_worker", lambda job: (before.append(capsys.readouterr().out), run_worker(job))[1])
    assert main(["check", "toy"]) == 1
    (early,), rest = before, capsys.readouterr().out
    assert early.startswith("✗ use_case.yaml\n")
    assert "did you mean 'owner'?" in early
    assert "owner" not in rest
    assert "✓ predict" in rest
    assert rest.splitlines()[-1].startswith("1 problem in toy")


@pytest.mark.parametrize(
    ("name", "old", "new", "told"),
    [
        ("contract.yaml", "logicalType: integer", "logicalType: whole", "fix the contract first"),
        ("model.py", "def predict(", "def predicts(", "fix model.py first"),
        ("use_case.yaml", "stages: {smoke", "stages: {{smoke", "fix the hyperparameters first"),
        # Tried on labels of another kind, they would end with an error that names none of this.
        ("use_case.yaml", "kind: binary", "kind: multiclass", "fix task in use_case.yaml first"),
        ("use_case.yaml", "kind: binary", "kind: language_model", "fix task in use_case.yaml first"),
    ],
)
def test_check_names_the_functions_untried_where_their_ground_is_missing(toy, name, old, new, told, capsys):
    edit(toy, name, old, new)
    assert main(["check", "toy"]) == 1
    out = capsys.readouterr().out
    assert f"– functions      not tried: {told}" in out
    assert f"✗ {name}" in out


def test_check_of_a_model_that_cannot_be_imported_tells_its_line_once(toy, capsys):
    edit(toy, "model.py", 'SHOPS = ["north"', 'import not_installed\n\nSHOPS = ["north"')
    assert main(["check", "toy"]) == 1
    out = capsys.readouterr().out
    assert "No module named 'not_installed'" in out
    assert (out.count("✗"), out.count("✓ model.py")) == (1, 0)
    assert "1 problem in toy" in out


def test_check_of_an_unknown_use_case_offers_the_near_one(toy, capsys):
    assert main(["check", "toi"]) == 1
    assert "did you mean 'toy'?" in capsys.readouterr().err


def test_check_and_new_import_neither_torch_nor_dagster_nor_mlflow():
    heavy = ("torch", "dagster", "mlflow", "great_expectations")
    code = (
        "import sys, trainworthy.pipeline.check, trainworthy.pipeline.scaffold.create, trainworthy.pipeline.schema; "
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_check_of_a_use_case_with_its_own_trainer_tells_what_its_script_lacks(toy, capsys):
    edit(toy, "use_case.yaml", "stages: {", "trainer: train.py\nstages: {")
    (toy / "train.py").write_text("def train(session):\n    return None\n")
    edit(toy, "model.py", "def loss_fn(", "def own_loss(")
    assert main(["check", "toy"]) == 0
    assert "✓ train.py" in (out := capsys.readouterr().out)
    assert "loss_fn" not in out
    (toy / "train.py").write_text("def train():\n    pass\n")
    assert main(["check", "toy"]) == 1
    out = capsys.readouterr().out
    assert "✗ train.py" in out
    assert "write def train(session):" in out
    assert "train returns nothing" in out


def without_task(toy):
    """The use case as it was before there were kinds; returns the lines of its use_case.yaml."""
    edit(toy, "use_case.yaml", "task: {kind: binary}\n", "")
    return (toy / "use_case.yaml").read_text()


def test_check_of_a_use_case_without_a_task_is_one_error_that_names_its_fix(toy, capsys):
    without_task(toy)
    assert main(["check", "toy"]) == 1
    out = capsys.readouterr().out
    assert "use_case.yaml: task: the key is missing" in out
    assert "trainworthy check --fix" in out
    assert "1 problem in toy" in out


OTHER_LABELS = {
    "binary": {},
    "regression": {"greaterThan: 0": "type: number", "role, value: target_source": "role, value: target"},
    "multiclass": {
        "greaterThan: 0": "type: class, classes: [1, 2]", "role, value: target_source": "role, value: target",
        "- name: score\n        logicalType: number": "- name: score\n        logicalType: integer",
    },
    "multilabel": {
        "greaterThan: 0": 'type: labels, classes: [a, b], separator: "|"',
        "role, value: target_source": "role, value: target",
        "- name: score\n        logicalType: number": "- name: score\n        logicalType: string",
    },
    "segmentation": {
        "greaterThan: 0": "type: mask, classes: [a, b]",
        "role, value: target_source}": "role, value: target}, {property: file, value: mask}",
        "- name: score\n        logicalType: number": "- name: score\n        logicalType: string",
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", OTHER_LABELS)
def test_check_fix_writes_the_task_by_the_label_s_type_and_keeps_all_else(toy, kind, capsys):
    without_task(toy)
    edit(toy, "use_case.yaml", "target: positive\n", "target: positive  # what is asked\n")
    for old, new in OTHER_LABELS[kind].items():
        edit(toy, "contract.yaml", old, new)
    path, line = toy / "use_case.yaml", f"task: {{kind: {kind}}}"
    lines = path.read_text().splitlines()
    main(["check", "toy", "--fix"])
    assert capsys.readouterr().out.startswith(f"wrote    {path}: {line}, since the contract's label positive is ")
    written = path.read_text().splitlines()
    assert [one for one in written if one != line] == lines
    assert written[written.index("target: positive  # what is asked") + 1] == line
    main(["check", "toy", "--fix"])
    assert capsys.readouterr().out.startswith("nothing to repair")
    assert path.read_text().splitlines() == written


def test_check_by_its_earlier_option_makes_an_old_use_case_well(toy, capsys):
    without_task(toy)
    assert main(["check", "toy", "--mend"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "old", "new", "told"),
    [
        ("use_case.yaml", "stages: {smoke", "stages: {{smoke", "use_case.yaml can't be read"),
        ("contract.yaml", "greaterThan: 0", "greaterThan: warm", "contract.yaml has problems"),
    ],
)
def test_check_fix_that_cannot_know_the_kind_writes_nothing_and_says_why(toy, name, old, new, told, capsys):
    without_task(toy)
    edit(toy, name, old, new)
    before = (toy / "use_case.yaml").read_text()
    assert main(["check", "toy", "--fix"]) == 1
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("nothing repaired: ")
    assert told in first
    assert (toy / "use_case.yaml").read_text() == before


@pytest.mark.parametrize(
    "text",
    [
        "name: a\ntarget: y\n# of the split\nsplit: {by: hash}\n",
        "name: a\nsplit: {by: hash}\ntarget: y",
        "# no target\nname: a\nsplit:\n  by: hash\n",
        "target: 'a: #b'  # quoted\nname: a\n",
    ],
)
def test_line_that_is_mended_in_changes_no_other_value(text):
    changed = with_line(text, "task: {kind: binary}")
    assert yaml.safe_load(changed) == yaml.safe_load(text) | {"task": {"kind": "binary"}}
    assert changed.replace("task: {kind: binary}\n", "").rstrip() == text.rstrip()


def test_check_tells_what_keeps_the_launcher_from_being_asked(toy, capsys, monkeypatch):
    edit(toy, "use_case.yaml", "sku: local-2cpu", "sku: local-2cpu, launcher: kubernetes")
    assert main(["check", "toy"]) == 1
    out = capsys.readouterr().out
    assert "compute.launcher" in out
    assert "kubernetes.yaml" in out
    assert "fix: " in out
