"""One update beside the same update in PyTorch: gradients by hand against automatic ones."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from convergence_core.policy.learner import PPOState, improve
from convergence_core.policy.network import ActorCritic
from convergence_core.policy.rollout import Offer, Rollout, choose
from convergence_core.policy.settings import PPOConfig

torch = pytest.importorskip("torch")

CONFIG = PPOConfig(
    input_dim=7,
    action_dim=5,
    hidden_dim=16,
    learning_rate=0.01,
    entropy_coef=0.03,
    batch_size=60,
    n_epochs=6,
)


def network(of: ActorCritic, name: str) -> Any:
    """Return one of the networks as a module with the same weights."""
    part = getattr(of, name)
    layers: list[Any] = []
    for weights, biases in zip(part.weights, part.biases, strict=True):
        layer = torch.nn.Linear(weights.shape[0], weights.shape[1], dtype=torch.float64)
        layer.weight.data = torch.tensor(weights.T.copy())
        layer.bias.data = torch.tensor(biases.copy())
        layers += [layer, torch.nn.Tanh()]
    return torch.nn.Sequential(*layers[:-1])


def played(state: PPOState, rng: np.random.Generator) -> Rollout:
    """Return random steps with masks; their stored values and probabilities are somewhat older."""
    legal = rng.random((60, 5)) < 0.6
    legal[:, -1] = True
    offer = Offer(observations=rng.normal(size=(60, 7)), legal=legal)
    choice = choose(state.networks, offer, rng)
    ends = rng.random((20, 3)) < 0.15
    return Rollout(
        version=0,
        observations=offer.observations.reshape(20, 3, 7),
        legal=legal.reshape(20, 3, 5),
        actions=choice.actions.reshape(20, 3),
        log_probs=(choice.log_probs + rng.normal(scale=0.3, size=60)).reshape(20, 3),
        values=(choice.values + rng.normal(scale=0.3, size=60)).reshape(20, 3),
        rewards=rng.normal(size=(20, 3)),
        terminated=ends,
        truncated=np.zeros_like(ends),
        final_values=np.zeros((20, 3)),
        last_values=rng.normal(size=3),
    )


@pytest.mark.parametrize("value_clip", [None, 0.2])
def test_an_update_equals_that_of_automatic_gradients(value_clip: float | None):
    config = replace(CONFIG, value_clip=value_clip)
    rng = np.random.default_rng(0)
    state = PPOState.begin(config, rng, dtype=np.float64)
    rollout = played(state, rng)
    after, seen = improve(state, rollout, config, np.random.default_rng(1))

    policy, value = network(state.networks, "policy"), network(state.networks, "value")
    parameters = [*policy.parameters(), *value.parameters()]
    adam = torch.optim.Adam(parameters, lr=0.01, eps=1e-5)
    batch = rollout.experience(config)
    x, legal = torch.tensor(batch.observations), torch.tensor(batch.legal)
    actions, returns, old = map(torch.tensor, (batch.actions, batch.returns, batch.values))
    advantages = torch.tensor(
        (batch.advantages - batch.advantages.mean()) / batch.advantages.std()
    )
    norms = []
    # One minibatch is the whole rollout, so its order does not matter.
    for _ in range(6):
        logits = policy(x).masked_fill(~legal, -torch.inf)
        chosen = torch.distributions.Categorical(logits=logits, validate_args=False)
        log_probs = chosen.logits.masked_fill(~legal, 0.0)
        entropy = -(chosen.probs * log_probs).sum(1).mean()
        ratio = torch.exp(chosen.log_prob(actions) - torch.tensor(batch.log_probs))
        surrogate = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
        v = value(x)[:, 0]
        errors = (v - returns) ** 2
        if value_clip is not None:
            held = old + (v - old).clamp(-value_clip, value_clip)
            errors = torch.maximum(errors, (held - returns) ** 2)
        adam.zero_grad()
        (-surrogate + 0.5 * errors.mean() - 0.03 * entropy).backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(parameters, 0.5)))
        adam.step()
    assert seen.n_minibatches == 6
    assert seen.gradient_norm == pytest.approx(np.mean(norms), rel=1e-6)
    for name, theirs in (("policy", policy), ("value", value)):
        ours = network(after.networks, name)
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            # PyTorch scales a long gradient by 0.5 / (norm + 1e-6).
            assert one.detach().numpy() == pytest.approx(other.detach().numpy(), abs=1e-6)
