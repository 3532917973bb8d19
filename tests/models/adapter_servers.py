"""Stand-ins of servers with adapters, which check each request against the documented form."""

from collections.abc import Collection
from pathlib import Path, PureWindowsPath
from typing import Any

from tests.support.http_server import Answer, Request

BASE = "tiny/base"


def check_keys(body: Any, needed: set[str], allowed: Collection[str] = ()) -> None:
    assert isinstance(body, dict), body
    assert needed <= body.keys() <= {*needed, *allowed}, body


def check_chat(body: Any) -> None:
    check_keys(
        body,
        {"model", "messages"},
        {"max_tokens", "lora", "temperature", "top_p", "stream", "stream_options"},
    )
    assert all(one.keys() == {"role", "content"} for one in body["messages"]), body


def completion(body: Any, text: str) -> Answer:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
    }
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    return Answer(
        {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "choices": [choice],
            "usage": usage,
        }
    )


class VllmServer:
    """``vllm serve tiny/base --enable-lora`` as its documentation and ``openai/models/serving.py`` have it.

    It answers with the name of who answers.
    """

    def __init__(self, *, is_dynamic: bool = True, key: str = "") -> None:
        self.is_dynamic, self.key = is_dynamic, key
        """Whether VLLM_ALLOW_RUNTIME_LORA_UPDATING is set."""
        self.adapters: dict[str, str] = {}
        self.answers_as: str | None = None
        self.fails_chat = False

    def __call__(self, request: Request) -> Answer:
        if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
            sent = request.headers.get("authorization", "")
            return Answer({"error": f"Unauthorized: {sent}"}, 401)
        if (request.method, request.path) == ("GET", "/v1/models"):
            return Answer({"object": "list", "data": self._models()})
        assert request.method == "POST", request
        assert request.headers["content-type"] == "application/json"
        posts = {"/v1/chat/completions": self._chat}
        if self.is_dynamic:
            posts["/v1/load_lora_adapter"] = self._load
            posts["/v1/unload_lora_adapter"] = self._unload
        if request.path not in posts:
            return Answer({"detail": "Not Found"}, 404)
        return posts[request.path](request.body)

    def _models(self) -> list[dict[str, Any]]:
        common = {"object": "model", "created": 1, "owned_by": "vllm", "permission": []}
        base = {"id": BASE, "root": BASE, "parent": None, "max_model_len": 512, **common}
        return [
            base,
            *({"id": n, "root": p, "parent": BASE, **common} for n, p in self.adapters.items()),
        ]

    def _chat(self, body: Any) -> Answer:
        check_chat(body)
        assert "lora" not in body
        model = body["model"]
        if model not in (BASE, *self.adapters):
            return _error(f"The model `{model}` does not exist.", "NotFoundError", 404)
        if self.fails_chat:
            return _error("CUDA error", "InternalServerError", 500)
        return completion({"model": self.answers_as or model}, model)

    def _load(self, body: Any) -> Answer:
        check_keys(body, {"lora_name", "lora_path"}, {"load_inplace", "is_3d_lora_weight"})
        name, path = body["lora_name"], body["lora_path"]
        assert name
        assert Path(path).is_absolute(), path
        if name in self.adapters:
            told = (
                f"The lora adapter '{name}' has already been loaded. If you want to load the adapter "
                "in place, set 'load_inplace' to True."
            )
            return _error(told, "InvalidUserInput", 400)
        if not (Path(path) / "adapter_config.json").is_file():
            return _error(
                f"Loading lora {name} failed: No adapter found for {path}", "NotFoundError", 404
            )
        self.adapters[name] = path
        return Answer(f"Success: LoRA adapter '{name}' added successfully.".encode())

    def _unload(self, body: Any) -> Answer:
        check_keys(body, {"lora_name"}, {"lora_int_id"})
        name = body["lora_name"]
        if self.adapters.pop(name, None) is None:
            return _error(f"The lora adapter '{name}' cannot be found.", "NotFoundError", 404)
        return Answer(f"Success: LoRA adapter '{name}' removed successfully.".encode())


class LlamaCppServer:
    """``llama-server --lora …`` as the README has it, with the state that a request leaves behind.

    It answers with what is added to the base model.
    """

    def __init__(self, *files: str) -> None:
        self.files = files
        self.scales = [1.0] * len(files)
        """Of the slot that answers: one that a request does not list stays as it is (issue 28674)."""

    def __call__(self, request: Request) -> Answer:
        listed = [{"id": i, "path": path, "scale": 1.0} for i, path in enumerate(self.files)]
        if (request.method, request.path) == ("GET", "/lora-adapters"):
            return Answer(listed)
        if (request.method, request.path) == ("GET", "/v1/models"):
            model = {
                "id": BASE,
                "object": "model",
                "created": 1,
                "owned_by": "llamacpp",
                "meta": None,
            }
            return Answer({"object": "list", "data": [model]})
        assert (request.method, request.path) == ("POST", "/v1/chat/completions"), request
        check_chat(request.body)
        for one in request.body.get("lora", ()):
            check_keys(one, {"id", "scale"})
            assert one["id"] in range(len(self.files)), one
            self.scales[one["id"]] = one["scale"]
        named = [
            PureWindowsPath(path).stem
            for path, scale in zip(self.files, self.scales, strict=True)
            if scale
        ]
        return completion(request.body, "+".join(["base", *named]))


def _error(message: str, kind: str, code: int) -> Answer:
    return Answer({"error": {"message": message, "type": kind, "param": None, "code": code}}, code)
