"""Client of the policy's service: decisions, outcomes, updates, training."""

import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, TypedDict, TypeVar, Unpack

from convergence.client import Client, ServiceCall, ServiceRefusedError, reads
from convergence_core.errors import ConfigurationError
from tasks.policy.records import ChosenAction, MutatedAction
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import shortened

DEFAULT_URL: Final = "http://127.0.0.1:8765"
DEFAULT_TOKEN: Final = "CONVERGENCE_POLICY_TOKEN"  # noqa: S105 - a variable's name
_STOP: Final = "stop"

Score = Callable[[str], float]
"""Prompt → its mean score in [0, 1], on the same cases each time."""
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeResult:
    """Episode: changes of a prompt until the policy stops or the steps end."""

    start: str
    prompt: str
    """Last prompt."""
    actions: tuple[str, ...]
    """Actions, including ``stop``."""
    scores: tuple[float, ...]
    """Score of the first prompt and after each change, in [0, 1]."""

    @property
    def gain(self) -> float:
        """Sum of the rewards: last score minus first score."""
        return self.scores[-1] - self.scores[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTraining:
    """Result of a training."""

    episodes: tuple[EpisodeResult, ...]
    updates: tuple[Mapping[str, Any], ...]
    """Diagnostics of each update, as ``update`` returns them."""


class PromptStateOptions(TypedDict, total=False):
    """Options that describe the state of a prompt."""

    history: Sequence[str]
    """Actions of this episode so far."""
    score: float | None
    """Score of the current prompt, in [0, 1]."""
    category: str
    """Most frequent kind of its failures."""
    excluded: Sequence[str]
    """Inapplicable actions."""


class PolicyClient:
    """Client of a policy, for one thread; connects at the first request."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        token: str | None = None,
        token_env: str = DEFAULT_TOKEN,
        retries: int = 3,
        timeout_s: float = 120.0,
    ) -> None:
        """Connect to a service.

        Args:
            url: root URL of the policy's paths; for ``convergence serve --policy`` it ends in
                ``/policy``.
            token: bearer token.
            token_env: environment variable that holds the token.
            retries: maximum repeats of a request after a lost connection, 429 or 503.
            timeout_s: longest wait for one answer, in seconds.
        """
        self._url, self._token, self._token_env = url, token, token_env
        self._settings: dict[str, Any] = {"retries": retries, "timeout_s": timeout_s}
        self._client: Client | None = None
        self._server: tuple[subprocess.Popen[str], str, str] | None = None
        """Process, URL and token of a service that this client started."""

    @property
    def token(self) -> str:
        """Bearer token of the service; empty if it is unknown."""
        if self._server is not None:
            return self._server[2]
        return self._token or os.environ.get(self._token_env, "")

    # -- the server

    def start_server(self, store: Path | str, *options: str) -> str:
        """Start a service of a store on a free port, connect to it, and return its URL.

        Args:
            store: folder of the store.
            options: options of ``convergence policy serve``.

        Raises:
            ConfigurationError: the service did not start; the message holds its output.
        """
        self.stop_server()
        token = secrets.token_urlsafe(32)
        command = [sys.executable, "-m", "convergence", "policy", "serve", "--port", "0"]
        # An unread pipe would fill up and block the service.
        with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
            process = subprocess.Popen(  # noqa: S603 - our own command
                [*command, "--token", DEFAULT_TOKEN, "--store", str(store), *options],
                env={**os.environ, DEFAULT_TOKEN: token, "COLUMNS": "1000"},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
            assert process.stdout is not None  # noqa: S101 - a pipe
            match = re.search(r"http://\S+", process.stdout.readline())
            if match is None:
                process.communicate()
                errors.seek(0)
                raise ConfigurationError.of(
                    "options",
                    "must be those of a service that starts",
                    shortened(errors.read().strip(), 2_000, redacted_text),
                )
        self._server = process, match[0], token
        self._disconnect()
        return match[0]

    def stop_server(self) -> None:
        """Let the service that this client started finish its answers, and stop it."""
        self._disconnect()
        server, self._server = self._server, None
        if server is not None:
            server[0].send_signal(signal.SIGTERM)
            server[0].communicate()

    def close(self) -> None:
        """Close the connections, and stop the service that this client started."""
        self.stop_server()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections, and stop the service that this client started."""
        self.close()

    # -- the policy

    def select_action(
        self,
        embedding: Sequence[float] | None = None,
        *,
        prompt: str | None = None,
        episode_id: str | None = None,
        deterministic: bool = False,
        **state: Unpack[PromptStateOptions],
    ) -> ChosenAction:
        """Choose the next prompt change. Without ``embedding``, the service computes it.

        Raises:
            ServiceRefusedError: the service refused the request or did not answer.
        """
        body = _state_body(prompt, embedding, state)
        body |= {"episode_id": episode_id, "deterministic": deterministic}
        return self._post("select_action", body, reads(ChosenAction))

    def select_mutation(
        self,
        prompt: str,
        *,
        embedding: Sequence[float] | None = None,
        episode_id: str | None = None,
        deterministic: bool = False,
        failures: Sequence[Mapping[str, str]] = (),
        **state: Unpack[PromptStateOptions],
    ) -> MutatedAction:
        """Choose the next prompt change, and let the service write it.

        Args:
            prompt: current prompt.
            embedding: embedding of the prompt; by default the service computes it.
            episode_id: the episode; ``None`` means a new one.
            deterministic: whether to take the most probable action.
            failures: failed cases: ``input``, ``answer``, and optionally ``expected`` and
                ``reason``.
            state: see ``PromptStateOptions``.

        Raises:
            ServiceRefusedError: the service refused the request or did not answer.
        """
        body = _state_body(prompt, embedding, state)
        body |= {"prompt": prompt, "episode_id": episode_id, "deterministic": deterministic}
        body["failures"] = [dict(failure) for failure in failures]
        return self._post("select_mutation", body, reads(MutatedAction))

    def store_experience(
        self,
        chosen: ChosenAction,
        reward: float,
        *,
        terminated: bool = False,
        truncated: bool = False,
        final: Mapping[str, Any] | None = None,
    ) -> str:
        """Store an outcome; return ``stored``, ``archived``, ``off_policy`` or ``duplicate``.

        Args:
            chosen: the chosen action.
            reward: gain of the change.
            terminated: whether the episode terminated.
            truncated: whether the caller cut the episode.
            final: last prompt of a cut episode: ``prompt`` or ``embedding``, ``history``,
                ``score``.

        Raises:
            ServiceRefusedError: the service refused the request or did not answer.
        """
        body = {
            "decision_id": chosen.decision_id, "episode_id": chosen.episode_id, "step": chosen.step,
            "reward": reward, "terminated": terminated, "truncated": truncated, "final": final,
        }  # fmt: skip
        return self._post("store_experience", body, lambda answer: str(answer["status"]))

    def update(self) -> dict[str, Any] | None:
        """Learn from the ready steps and return diagnostics; ``None`` if too few are ready.

        Raises:
            ServiceRefusedError: an update is already running, or the service did not answer.
        """

        def statistics(body: Mapping[str, Any]) -> dict[str, Any] | None:
            return dict(body["statistics"]) if body["updated"] else None

        return self._post("update", {}, statistics)

    def get_distribution(
        self,
        embedding: Sequence[float] | None = None,
        *,
        prompt: str | None = None,
        **state: Unpack[PromptStateOptions],
    ) -> dict[str, float]:
        """Return the probability of each action, without storing a decision.

        Raises:
            ServiceRefusedError: the service refused the request or did not answer.
        """
        body = _state_body(prompt, embedding, state)
        return self._post("get_distribution", body, lambda answer: dict(answer["probabilities"]))

    def stats(self) -> dict[str, Any]:
        """Return statistics of the policy."""
        return self._connected().answer(
            ServiceCall(read=dict, request={"method": "GET", "url": "stats"})
        )

    def save(self, name: str) -> bool:
        """Save the policy under a name; return whether that succeeded."""
        return self._is_done("save", name)

    def load(self, name: str) -> bool:
        """Continue with a saved policy; return ``False`` if no checkpoint of that name fits."""
        return self._is_done("load", name)

    # -- training

    def train_episode(
        self,
        prompts: Sequence[str],
        max_steps: int = 5,
        *,
        score: Score,
        number: int = 0,
    ) -> EpisodeResult:
        """Change a prompt until the policy stops or the steps end, and report each step.

        Args:
            prompts: initial prompts; the episode's number chooses one.
            max_steps: maximum number of changes.
            score: called for each new prompt.
            number: number of the episode.

        Raises:
            ServiceRefusedError: the service refused the request or did not answer.
            ValueError: ``prompts`` is empty.
        """
        if not prompts:
            raise ValueError("`prompts` must hold at least one prompt, but is empty")
        whole = int(self.stats()["max_steps"])
        n_steps = min(max_steps, whole)
        start = prompt = prompts[number % len(prompts)]
        history: list[str] = []
        episode_id: str | None = None
        scores = [score(prompt)]
        for step in range(n_steps):
            chosen = self.select_mutation(
                prompt, history=history, episode_id=episode_id, score=scores[-1]
            )
            episode_id = chosen.episode_id
            history.append(chosen.action)
            if chosen.action == _STOP:
                self.store_experience(chosen, 0.0, terminated=True)
                break
            # A rejected prompt leaves the current one in place: the step earned nothing.
            if chosen.prompt is not None:
                prompt = chosen.prompt
            scores.append(score(prompt) if chosen.prompt is not None else scores[-1])
            is_last = step == n_steps - 1
            is_cut = is_last and n_steps < whole
            now: PromptStateOptions = {"history": history, "score": scores[-1]}
            final = _state_body(prompt, None, now) if is_cut else None
            self.store_experience(
                chosen,
                scores[-1] - scores[-2],
                # The policy sees the number of steps, so reaching their maximum is a real end.
                terminated=is_last and not is_cut,
                truncated=is_cut,
                final=final,
            )
        return EpisodeResult(
            start=start, prompt=prompt, actions=tuple(history), scores=tuple(scores)
        )

    def train(
        self,
        prompts: Sequence[str],
        episodes: int = 100,
        episode_length: int = 5,
        update_interval: int = 10,
        *,
        score: Score,
        on_episode: Callable[[EpisodeResult], None] | None = None,
    ) -> PolicyTraining:
        """Play episodes on the prompts in turn, and update the policy at an interval.

        Args:
            prompts: initial prompts.
            episodes: number of episodes.
            episode_length: maximum changes of an episode.
            update_interval: number of episodes between updates.
            score: called for each new prompt; costs an evaluation each time.
            on_episode: called after each episode.

        Raises:
            ServiceRefusedError: the service refused the request or did not answer.
            ValueError: ``prompts`` is empty, or ``update_interval`` is below 1.
        """
        if update_interval < 1:
            raise ValueError(f"`update_interval` must be 1 or more, but got {update_interval}")
        played: list[EpisodeResult] = []
        updates: list[Mapping[str, Any]] = []
        for number in range(episodes):
            trained = self.train_episode(prompts, episode_length, score=score, number=number)
            played.append(trained)
            if on_episode is not None:
                on_episode(trained)
            if len(played) % update_interval == 0:
                statistics = self.update()
                if statistics is not None:
                    updates.append(statistics)
        return PolicyTraining(episodes=tuple(played), updates=tuple(updates))

    # -- requests

    def _connected(self) -> Client:
        if self._client is None:
            self._client = Client(
                self._url if self._server is None else self._server[1],
                token=self.token,
                token_env=self._token_env,
                **self._settings,
            )
        return self._client

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _post(
        self, path: str, body: Mapping[str, Any], read: Callable[[dict[str, Any]], _Answer]
    ) -> _Answer:
        request = {"method": "POST", "url": path, "json": dict(body)}
        return self._connected().answer(ServiceCall(read=read, request=request))

    def _is_done(self, path: str, name: str) -> bool:
        try:
            self._post(path, {"name": name}, dict)
        except ServiceRefusedError as refusal:
            if refusal.status in {404, 409, 422}:
                return False
            raise
        return True


def _state_body(
    prompt: str | None, embedding: Sequence[float] | None, state: PromptStateOptions
) -> dict[str, Any]:
    body: dict[str, Any] = {**state}
    for name in body.keys() & {"history", "excluded"}:  # JSON knows no other sequences than lists
        body[name] = list(body[name])
    if embedding is not None:
        return {**body, "embedding": [float(number) for number in embedding]}
    return {**body, "prompt": prompt}
