"""LangGraph agent as a target: a graph that votes in a loop on a question's topic."""

import operator
import os
from collections import Counter
from typing import Annotated, TypedDict

import openai
from langgraph.graph import END, START, StateGraph

MODEL = openai.AsyncOpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8765/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "none"),
    max_retries=0,  # the optimizer retries, within its limits
)


class State(TypedDict):
    """State passed between nodes. Lists and counts accumulate."""

    question: str
    params: dict
    votes: Annotated[list[str], operator.add]
    tokens_in: Annotated[int, operator.add]
    tokens_out: Annotated[int, operator.add]


async def vote(state: State) -> dict:
    """Call the model for another vote."""
    params = state["params"]
    answer = await MODEL.chat.completions.create(
        model=params["model"],
        temperature=params["temperature"],
        seed=len(state["votes"]),
        messages=[
            {"role": "system", "content": params["prompt"]},
            {"role": "user", "content": state["question"]},
        ],
    )
    return {
        "votes": [(answer.choices[0].message.content or "").strip(" .").lower()],
        "tokens_in": answer.usage.prompt_tokens,
        "tokens_out": answer.usage.completion_tokens,
    }


def after_vote(state: State) -> str:
    """Continue until the parameter's number of votes is reached."""
    return END if len(state["votes"]) >= state["params"]["votes"] else "vote"


GRAPH = (
    StateGraph(State)
    .add_node("vote", vote)
    .add_edge(START, "vote")
    .add_conditional_edges("vote", after_vote, ["vote", END])
    .compile()
)


async def answer(question, *, model, temperature, votes, prompt):
    """Return the topic with the most votes."""
    params = {"model": model, "temperature": temperature, "votes": votes, "prompt": prompt}
    begun = {"question": question, "params": params}
    begun |= {"votes": [], "tokens_in": 0, "tokens_out": 0}
    try:
        state = await GRAPH.ainvoke(begun, {"recursion_limit": 10})
    except (openai.APIConnectionError, openai.RateLimitError, openai.InternalServerError) as error:
        raise ConnectionError(str(error)) from error  # not the candidate's fault: retried
    topic, _ = Counter(state["votes"]).most_common(1)[0]
    return {
        "result": topic,
        "tokens_in": state["tokens_in"],
        "tokens_out": state["tokens_out"],
    }
