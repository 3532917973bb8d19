"""A chat whose adapters change amid its requests: none fails, and each label is the answer's own."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

pytest.importorskip("torch", reason="needs the extra `local` (pip install '.[local]')")

from convergence.service.server import Service, ServiceOptions
from convergence_core.feedback.roles import BUILT_IN
from tasks.chat.logged_chat import LoggedChat
from tasks.inputs.environment import Environment
from tasks.models.files import LOCAL_MODELS, ModelFiles
from tasks.models.requests import ChatRequest
from tasks.store.feedback.adapter_store import AdapterStore
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.runtime.runtime_store import RuntimeStore
from tests.feedback.adapters import PASSED, rated
from tests.models.tiny_adapters import make_adapter, make_model
from tests.service.conftest import SECRETS, all_tokens
from tests.support.configurations import loaded

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

N_REQUESTS = 500
N_CLIENTS = 8
PROMPTS = [f"w{i} w{i + 5} w{3 * i}" for i in range(4)]
N_TOKENS = 5


class Talk:
    """A service whose local model has adapters."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        self.root = root
        folder = make_model(root / "tiny")
        self.files = ModelFiles(folder=folder, gguf=None)
        store = stack.enter_context(RuntimeStore(root / "store"))
        self.feedback = stack.enter_context(FeedbackStore(root / "store"))
        self.adapters = AdapterStore(self.feedback)
        self._mark = rated(self.feedback, "a")
        options = {"model": str(folder), "max_tokens": N_TOKENS}
        request = {"options": options, "timeout_seconds": 120}
        made = loaded(
            api={"name": "talk", "kind": "local", "request": request},
            search_space__parameters={
                "temperature": {"type": "float", "min": 0, "max": 1, "default": 0}
            },
        )
        chat = LoggedChat(made, Environment.unchecked(made.configuration), self.feedback, store)
        service = Service(store, all_tokens(), ServiceOptions(port=0), chat=chat)
        self.url = stack.enter_context(service).url

    def register(self, seed: int, harm: Callable[[Path], object] | None = None) -> str:
        """Register a random adapter that passed its check; return its version."""
        source = make_adapter(self.root / f"source-{len(self.adapters.records())}", seed)
        if harm is not None:
            harm(source)
        version = self.adapters.register(
            source, role="assistant", base_model=str(self.files.folder), objective="qrpo",
            marks=[self._mark],
        )  # fmt: skip
        self.adapters.record_checks(version, [PASSED])
        return version

    def client(self) -> httpx.Client:
        bearer = {"Authorization": f"Bearer {SECRETS['admin']}"}
        return httpx.Client(base_url=self.url, headers=bearer, timeout=120)

    def ask(self, client: httpx.Client, prompt: str, model: str = "assistant") -> httpx.Response:
        messages = [{"role": "user", "content": prompt}]
        return client.post("/v1/chat/completions", json={"model": model, "messages": messages})

    def stream(self, client: httpx.Client, prompt: str) -> tuple[str, str | None, int]:
        """Return a streamed answer, its label, and how many pieces it came in."""
        body = {
            "model": "assistant",
            "messages": [{"role": "user", "content": prompt}],
            "stream": True,
        }
        response = client.post("/v1/chat/completions", json=body)
        assert response.status_code == 200, response.text
        lines = [line[6:] for line in response.text.splitlines() if line.startswith("data: {")]
        events = [json.loads(line) for line in lines]
        assert not any("error" in event for event in events), events
        pieces = [event["choices"][0]["delta"].get("content", "") for event in events]
        return "".join(pieces), events[-1]["system_fingerprint"], sum(map(bool, pieces))

    def reference(self, prompt: str, version: str | None) -> str:
        """Return what a model asked by itself answers with an adapter."""
        model = LOCAL_MODELS.open(self.files)
        messages = (
            {"role": "system", "content": BUILT_IN["assistant"]}, {"role": "user", "content": prompt}
        )  # fmt: skip
        asked = ChatRequest(
            messages=messages, max_tokens=N_TOKENS, temperature=0.0, top_p=1.0, top_k=None, stop=(),
            seed=None, adapter=None if version is None else self.adapters.folder(version).resolve(),
        )  # fmt: skip
        try:
            return model.ask(asked, 60.0).result(600).text
        finally:
            LOCAL_MODELS.close(self.files)


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talk]:
    with ExitStack() as stack:
        yield Talk(tmp_path_factory.mktemp("talk"), stack)


def test_no_request_fails_and_no_label_is_wrong_while_adapters_change(talk: Talk):
    first, second = talk.register(1), talk.register(2)
    told = {
        (prompt, version): talk.reference(prompt, version)
        for prompt in PROMPTS
        for version in (None, first, second)
    }
    for prompt in PROMPTS:  # an answer shows who gave it
        assert len({told[prompt, version] for version in (None, first, second)}) == 3
    changes: dict[int, Callable[[], object]] = {
        100: lambda: talk.adapters.activate(first, "gate"),
        230: lambda: talk.adapters.activate(second, "gate"),
        360: lambda: talk.adapters.rollback("assistant", "ada"),
    }
    lock, done = threading.Lock(), Counter[str]()

    def go(i: int) -> None:
        prompt = PROMPTS[i % len(PROMPTS)]
        if i % 2:
            text, version, n = talk.stream(client, prompt)
            assert n > 1
        else:
            response = talk.ask(client, prompt)
            assert response.status_code == 200, response.text
            answer = response.json()
            text = answer["choices"][0]["message"]["content"]
            version = answer["system_fingerprint"]
        assert text == told[prompt, version], (i, version)
        with lock:
            done[str(version)] += 1
            change = changes.pop(done.total(), None)
        if change is not None:
            change()

    with talk.client() as client, ThreadPoolExecutor(N_CLIENTS) as pool:
        list(pool.map(go, range(N_REQUESTS)))
    assert done.total() == N_REQUESTS
    assert changes == {}
    assert all(done[str(version)] > 50 for version in (None, first, second)), done
    kept = [answer for answer, _ in talk.feedback.history("admin", n=1000)]
    assert Counter(str(one.adapter_version) for one in kept) == done
    for one in kept:
        assert one.response == told[one.asked[-1].content, one.adapter_version]
        assert (one.model, one.logprobs is not None) == (str(talk.files.folder), True)
    with talk.client() as client:
        models = {m["id"]: m["adapter_version"] for m in client.get("/v1/models").json()["data"]}
        counts = client.get("/v1/feedback/status").json()["roles"]["assistant"]
    assert (models["assistant"], models["code"]) == (first, None)
    assert counts["adapter_version"] == first
