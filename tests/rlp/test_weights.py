"""Training of open weights: each equation against its closed form, and a world where thoughts pay."""

import copy
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

torch = pytest.importorskip("torch", reason='needs the extra "training" (PyTorch)')

from convergence.plugins.learning.rlp_weights import WeightsConfig, WeightsTrainer  # noqa: E402
from tests.docs.test_documents import ROOT, blocks  # noqa: E402

# Tokens: 0 pad, 1 think, 2 end, 3..6 hints, 7..10 outcomes, 11..14 prefixes.
THINK, END, HINTS, OUTCOMES, PREFIXES = 1, 2, (3, 4, 5, 6), (7, 8, 9, 10), (11, 12, 13, 14)
SIZE = 15
CONFIG = WeightsConfig(begin=(THINK,), end=END, n_thoughts=8, thought_length=1, temperature=1.0)


Module: Any = torch.nn.Module


class Tiny(Module):  # type: ignore[misc]  # torch may be absent
    """A causal model: a gated recurrent unit over embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(SIZE, 24)
        self.unit = torch.nn.GRU(24, 32, batch_first=True)
        self.out = torch.nn.Linear(32, SIZE)

    def forward(self, ids: Any) -> Any:
        return self.out(self.unit(self.words(ids))[0])


def read(rng: np.random.Generator, n: int) -> list[list[int]]:
    """Return texts: after the hint that belongs to a prefix its outcome follows, else any does."""
    texts = []
    for _ in range(n):
        i, hint = rng.integers(4), rng.integers(4)
        outcome = OUTCOMES[i if hint == i else rng.integers(4)]
        thought = [THINK, HINTS[hint], END]
        silent = [PREFIXES[i], OUTCOMES[rng.integers(4)], 0, 0]
        texts.append([PREFIXES[i], *thought, outcome] if rng.random() < 0.8 else [*silent, 0])
    return texts


@pytest.fixture(scope="module")
def taught() -> Any:
    """Return a model that has read that world, and writes every hint alike."""
    torch.manual_seed(0)
    model = Tiny()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    rng = np.random.default_rng(0)
    for _ in range(300):
        ids = torch.tensor(read(rng, 64))
        logs = torch.log_softmax(model(ids[:, :-1]), dim=-1)
        loss = torch.nn.functional.nll_loss(logs.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def trainer_of(model: Any, config: WeightsConfig = CONFIG, lr: float = 0.003) -> WeightsTrainer:
    own = copy.deepcopy(model)
    return WeightsTrainer(own, torch.optim.Adam(own.parameters(), lr=lr), config, seed=1)


def test_a_gain_is_the_log_likelihood_ratio_of_the_model_and_its_slow_copy(taught: Any):
    trainer = trainer_of(taught)
    with torch.no_grad():
        told = torch.log_softmax(taught(torch.tensor([[11, THINK, 3, END]]))[0, -1], dim=-1)
        silent = torch.log_softmax(taught(torch.tensor([[11]]))[0, -1], dim=-1)
    expected = float(told[7] - silent[7])
    assert trainer.gain([11], [7], [3]) == pytest.approx(expected, abs=1e-5)
    # After the right hint the outcome is certain, after a wrong one each of four is as likely.
    assert expected - trainer.gain([11], [7], [4]) == pytest.approx(math.log(4), abs=0.3)


def test_padding_beside_a_longer_row_changes_nothing(taught: Any):
    trainer = trainer_of(taught)
    both = trainer._gains(
        [[11], [12, 12, 12]], [[7], [8, 8]], [[11, 1], [12, 12, 12, 1]], [[3], [4]]
    )
    assert both[0] == pytest.approx(trainer.gain([11], [7], [3]), abs=1e-5)
    assert both[1] == pytest.approx(trainer.gain([12, 12, 12], [8, 8], [4]), abs=1e-5)


def test_the_first_step_is_the_group_centred_policy_gradient(taught: Any):
    """With rho = 1 the gradient of eq. 8 is that of -mean A_i mean_u log pi(c_u)."""
    trainer = trainer_of(taught)
    starts, thoughts = [[11, THINK]] * 4, [[3], [4], [], [6]]
    advantages = torch.tensor([1.0, -0.5, 0.25, -0.75])
    with torch.no_grad():
        old = trainer._log_policy(starts, thoughts)
    loss = trainer._loss(starts, thoughts, old, advantages)
    found = torch.autograd.grad(loss, list(trainer.model.parameters()))
    logs = torch.log_softmax(trainer.model(torch.tensor([[11, THINK]]))[0, -1], dim=-1)
    means = torch.stack([logs[3], logs[4], logs[END], logs[6]])
    expected = torch.autograd.grad(-(advantages * means).mean(), list(trainer.model.parameters()))
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_advantages_are_centred_within_each_prefix_and_the_slow_copy_follows(taught: Any):
    config = WeightsConfig(
        begin=(THINK,), end=END, n_thoughts=4, thought_length=1, temperature=1.0, decay=0.9
    )
    trainer = trainer_of(taught, config)
    before = [p.clone() for p in trainer.slow.parameters()]
    step = trainer.step([[11], [12]], [[7], [8]])
    assert step.gains.shape == (2, 4)
    for old, slow, fast in zip(
        before, trainer.slow.parameters(), trainer.model.parameters(), strict=True
    ):
        assert torch.allclose(slow, 0.9 * old + 0.1 * fast, atol=1e-6)


@pytest.mark.statistical
def test_thoughts_that_predict_are_learned_and_permuted_rewards_teach_nothing(taught: Any):
    """Gains of the last steps exceed those of the first, two-sided t-test at .001."""

    def gains(*, permuted: bool) -> np.ndarray:
        rng, trainer = np.random.default_rng(3), trainer_of(taught, lr=0.005)
        means = []
        for _ in range(150):
            i = rng.integers(4, size=16)
            shown = rng.integers(4, size=16) if permuted else i
            step = trainer.step([[PREFIXES[k]] for k in i], [[OUTCOMES[k]] for k in shown])
            means.append(step.mean_gain)
        return np.array(means)

    learned, permuted = gains(permuted=False), gains(permuted=True)
    assert learned[-40:].mean() > learned[:10].mean() + 0.2
    assert stats.ttest_ind(learned[-40:], learned[:10], equal_var=False).pvalue < 0.001
    assert permuted[-40:].mean() < permuted[:10].mean() + 0.1


def test_the_example_of_the_documents_runs(taught: Any, capsys: pytest.CaptureFixture[str]):
    text = (ROOT / "docs/thoughts.md").read_text(encoding="utf-8")
    (block,) = [b for b in blocks(text, "python") if "WeightsTrainer" in b]
    model = copy.deepcopy(taught)
    known = {
        "model": model,
        "optimizer": torch.optim.Adam(model.parameters(), lr=1e-6),
        "THINK": THINK,
        "END": END,
        "prefixes": [[11], [12]],
        "outcomes": [[7], [8]],
    }
    exec(block, known)  # noqa: S102 - our own documents
    assert np.isfinite(float(capsys.readouterr().out))


@pytest.mark.parametrize(
    "wrong",
    [{"n_thoughts": 1}, {"thought_length": 0}, {"temperature": 0.0}, {"decay": 1.1},
     {"clip_low": 1.0}, {"clip_high": 0.0}, {"n_epochs": 0}],
)  # fmt: skip
def test_numbers_without_meaning_are_refused(wrong: dict[str, Any]):
    with pytest.raises(ValueError, match=f"`{next(iter(wrong))}` must be"):
        WeightsConfig(begin=(1,), end=2, **wrong)


def test_empty_texts_are_refused(taught: Any):
    trainer = trainer_of(taught)
    for prefixes, outcomes in (([], []), ([[11]], []), ([[]], [[7]]), ([[11]], [[]])):
        with pytest.raises(ValueError, match="outcome"):
            trainer.step(prefixes, outcomes)
