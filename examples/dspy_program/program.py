"""DSPy program as a target, with instructions, demonstrations and module kind as parameters."""

import os
from typing import Literal

import dspy
from dspy.utils.exceptions import LMRateLimitError, LMServerError, LMTimeoutError, LMTransportError

DEMOS = {
    "none": [],
    "two": [("Does payment by card work?", "payment"), ("Is there a return label?", "return")],
    "four": [
        ("Does payment by card work?", "payment"),
        ("Is there a return label?", "return"),
        ("Where is the tracking number?", "tracking"),
        ("Do your hours change at Easter?", "hours"),
    ],
}
MODULES = {"predict": dspy.Predict, "chain_of_thought": dspy.ChainOfThought}
ADAPTER = dspy.JSONAdapter()
FAULTS = (LMRateLimitError, LMServerError, LMTimeoutError, LMTransportError)


class Topic(dspy.Signature):
    """Replaced by the parameter `instructions`."""

    question: str = dspy.InputField()
    topic: Literal["tracking", "payment", "return", "hours"] = dspy.OutputField()


def program_of(module, demos, instructions):
    """Return the program for a candidate's or the winner's parameters."""
    program = MODULES[module](Topic.with_instructions(instructions))
    examples = [
        dspy.Example(question=question, topic=topic).with_inputs("question")
        for question, topic in DEMOS[demos]
    ]
    for predictor in program.predictors():
        predictor.demos = examples
    return program


async def answer(question, *, model, temperature, module, demos, instructions):
    """Return the topic that the program names."""
    asked = dspy.LM(
        f"openai/{model}",
        api_base=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8765/v1"),
        api_key=os.environ.get("OPENAI_API_KEY", "none"),
        temperature=temperature,
        cache=False,  # the optimizer stores each answer with its cost
        num_retries=0,  # the optimizer retries, within its limits
    )
    with dspy.context(lm=asked, adapter=ADAPTER, track_usage=True):
        try:
            found = await program_of(module, demos, instructions).acall(question=question)
        except FAULTS as error:
            raise ConnectionError(str(error)) from error  # not the candidate's fault
    usage = found.get_lm_usage() or {}
    return {
        "result": found.topic,
        "tokens_in": sum(one["prompt_tokens"] for one in usage.values()),
        "tokens_out": sum(one["completion_tokens"] for one in usage.values()),
    }
