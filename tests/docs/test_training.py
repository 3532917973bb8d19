"""The page on training from ratings names what there is."""

from pathlib import Path

import yaml

from convergence.templates import plan_files
from convergence_core.config import parse_mapping
from convergence_core.config.feedback import TrainingConfig
from convergence_core.feedback.activation_gate import LEAST_HELD_OUT
from deployments.nightly.plan import TRAINING_CRON, plan
from tasks.models.files import PACKAGE_COMMAND
from tests.docs.test_documents import ROOT, blocks

PAGE = (ROOT / "docs/training.md").read_text(encoding="utf-8")


def test_the_gate_is_told_with_its_fewest_prompts():
    assert f"at least {LEAST_HELD_OUT} held-out prompts" in PAGE


def test_the_keys_of_the_page_are_those_of_the_configuration():
    block, _ = blocks(PAGE, "yaml")
    shown = yaml.safe_load(block)["feedback"]["training"]
    defaults = TrainingConfig()
    assert {
        name: getattr(defaults, name) for name in ("objective", "min_ratings", "held_out")
    } == {name: shown[name] for name in ("objective", "min_ratings", "held_out")}
    TrainingConfig.model_validate(shown)


def test_the_model_of_another_machine_is_trained_here_and_asked_there():
    _, block = blocks(PAGE, "yaml")
    text = plan_files("local-chat")["optimization.yaml"]
    given, whole = yaml.safe_load(block), yaml.safe_load(text)
    whole |= given
    parsed = parse_mapping(whole)
    assert parsed.api.request.options["model"] == "my/model"
    assert parsed.feedback.training.base_model_path == "/models/my-model"


def test_training_has_a_pool_of_its_own():
    found = plan(Path("/c"), Path("/s"), system="x", trains=True, training_pool="trainers")
    assert {one.full_name: one.pool for one in found if one.pool} == {"train/idle": "trainers"}
    commands = blocks(PAGE, "text")[0].splitlines()
    assert commands[0] == "convergence deploy --pool local --training-pool trainers"


def test_the_example_is_accepted_and_trains_the_model_it_asks():
    text = plan_files("local-chat")["optimization.yaml"]
    parsed = parse_mapping(yaml.safe_load(text))
    assert parsed.feedback.training.min_ratings == 20
    assert parsed.api.request.options["model"] == "smollm2-135m-instruct"
    assert PACKAGE_COMMAND in PAGE


def test_the_deployment_looks_as_often_as_the_page_says():
    trained = {one.full_name: one for one in plan(Path("/c"), Path("/s"), system="x", trains=True)}
    assert trained["train/idle"].cron == TRAINING_CRON == "*/15 * * * *"
    assert trained["train/idle"].parameters == {"config": "/c"}
    assert "every quarter of an hour" in PAGE
    without = {one.full_name for one in plan(Path("/c"), Path("/s"), system="x")}
    assert "train/idle" not in without
