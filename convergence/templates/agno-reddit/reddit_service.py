"""Simulation of Reddit's HTTP API on this machine.

It answers the requests that Agno's ``RedditTools`` sends with PRAW, in the forms that Reddit
documents, and keeps what they change. Each client has its own Reddit, which starts with
``SUBREDDITS``.
"""

from typing import Any

from convergence.testing import RefusedError, SimulatedRequest, SimulatedService

MOST_LETTERS = 40_000
"""Maximum characters of a text, as at Reddit."""
BEGUN = 1_747_000_000
"""Time of all first posts, in seconds."""

SUBREDDITS = {
    "printers": ("Everything that prints", 48_213, [
        ("margaret", "My printer is on fire", "It shows error code E42 and smokes.", 311),
        ("alan", "Which toner for the office", "We print 900 pages a week, in black alone.", 120),
        ("gold_seller", "Buy gold now", "Cheap and fast, click here.", 2),
    ]),
    "gardening": ("Plants, soil and patience", 150_902, [
        ("ada", "First tomatoes of the year", "They were sown on 3 March, by the window.", 845),
        ("linus", "Snails ate my salad", "Copper tape around the beds kept the rest safe.", 402),
        ("crypto_king", "Free coins", "For everyone who clicks here.", 1),
    ]),
    "baking": ("Bread and cake", 87_455, [
        ("grace", "Sourdough that rose at last", "The trick was 28 degrees and two days.", 990),
        ("barbara", "Flat bread again", "My yeast was from 2019.", 77),
    ]),
    "trains": ("Railways of all kinds", 23_518, [
        ("ken", "The night train is back", "It leaves at 22:14 and has beds.", 512),
        ("dennis", "A bridge from above", "Built in 1911, and still in use.", 230),
    ]),
}  # fmt: skip
USERS = {
    "margaret": (312, 1045), "alan": (88, 960), "ada": (2711, 5120), "linus": (430, 77),
    "grace": (1906, 3300), "barbara": (59, 12), "ken": (804, 1501), "dennis": (266, 940),
    "gold_seller": (-41, 3), "crypto_king": (-97, 1), "helper": (10, 10),
}  # fmt: skip
"""User → karma of comments and of posts."""


State = dict[str, Any]


def first_state() -> State:
    """Return posts and comments by name."""
    state: State = {"t3": {}, "t1": {}}
    for name, (_, _, posts) in SUBREDDITS.items():
        for author, title, text, score in posts:
            post_id = f"p{len(state['t3']):03d}"
            add_post(state, post_id, name, author=author, title=title, text=text, score=score)
    add_comment(state, "k000", "t3_p000", "alan", "Is it a laser printer?")
    return state


def add_post(
    state: State, post_id: str, name: str, *, author: str, title: str, text: str, score: int
) -> dict[str, Any]:
    """Write a post in Reddit's form, and return it."""
    link = f"/r/{name}/comments/{post_id}/"
    made = {
        "id": post_id, "name": f"t3_{post_id}", "title": title, "selftext": text, "score": score,
        "author": author, "subreddit": name, "subreddit_name_prefixed": f"r/{name}", "is_self": True,
        "permalink": link, "url": f"https://www.reddit.com{link}", "created_utc": BEGUN + score,
        "link_flair_text": None, "num_comments": 0, "over_18": False,
    }  # fmt: skip
    state["t3"][f"t3_{post_id}"] = made
    return made


def add_comment(
    state: State, comment_id: str, parent: str, author: str, text: str
) -> dict[str, Any]:
    """Write a comment on a post or a comment in Reddit's form, and return it."""
    of = state["t3"][state["t1"][parent]["link_id"] if parent.startswith("t1_") else parent]
    made = {
        "id": comment_id, "name": f"t1_{comment_id}", "body": text, "score": 1, "author": author,
        "subreddit": of["subreddit"], "link_id": of["name"], "parent_id": parent,
        "permalink": f"{of['permalink']}{comment_id}/", "created_utc": BEGUN, "replies": "",
    }  # fmt: skip
    state["t1"][f"t1_{comment_id}"] = made
    return made


def subreddit(name: str) -> dict[str, Any]:
    """Return a subreddit in Reddit's form."""
    title, subscribers, _ = SUBREDDITS[name]
    return {
        "id": f"2q{sorted(SUBREDDITS).index(name)}", "name": f"t5_{name}", "display_name": name, "title": title,
        "description": f"{title}. Be kind, and write in whole sentences.", "public_description": title,
        "subscribers": subscribers, "active_user_count": subscribers // 100, "created_utc": BEGUN,
        "over18": False, "url": f"/r/{name}/",
    }  # fmt: skip


def listing(kind: str, entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return things as one of Reddit's pages."""
    children = [{"kind": kind, "data": entry} for entry in entries]
    return {
        "kind": "Listing",
        "data": {"children": children, "after": None, "before": None, "dist": len(entries)},
    }


def token(state: State, request: SimulatedRequest) -> dict[str, Any]:
    """Return a client's token, which is its id."""
    return {
        "access_token": request.token, "token_type": "bearer", "expires_in": 86_400, "scope": "*",
    }  # fmt: skip


def me(state: State, request: SimulatedRequest) -> dict[str, Any]:
    """Return the client's user."""
    return {**user(state, request, "helper")["data"], "features": {}}


def user(state: State, request: SimulatedRequest, name: str) -> dict[str, Any]:
    """Return a user."""
    of_comments, of_posts = USERS[name]
    data = {
        "id": f"u{sorted(USERS).index(name)}", "name": name, "comment_karma": of_comments, "link_karma": of_posts,
        "is_mod": False, "is_gold": False, "is_employee": False, "created_utc": BEGUN,
    }  # fmt: skip
    return {"kind": "t2", "data": data}


def popular(state: State, request: SimulatedRequest) -> dict[str, Any]:
    """Return the subreddits with the most subscribers."""
    names = sorted(SUBREDDITS, key=lambda name: -SUBREDDITS[name][1])
    return listing("t5", [subreddit(name) for name in names][: request.limit("limit", 25, 100)])


def about(state: State, request: SimulatedRequest, name: str) -> dict[str, Any]:
    """Return a subreddit."""
    return {"kind": "t5", "data": subreddit(name.lower())}


def top(state: State, request: SimulatedRequest, name: str) -> dict[str, Any]:
    """Return the posts of a subreddit, highest score first."""
    place = subreddit(name.lower())["display_name"]
    posts = [post for post in state["t3"].values() if post["subreddit"] == place]
    posts.sort(key=lambda post: -post["score"])
    return listing("t3", posts[: request.limit("limit", 25, 100)])


def thread(state: State, request: SimulatedRequest, post_id: str) -> list[Any]:
    """Return a post with its comments."""
    of = state["t3"][f"t3_{post_id}"]
    replies = [comment for comment in state["t1"].values() if comment["link_id"] == of["name"]]
    return [listing("t3", [of]), listing("t1", replies)]


def info(state: State, request: SimulatedRequest) -> dict[str, Any]:
    """Return comments by name."""
    names = request.query.get("id", "").split(",")
    return listing("t1", [state["t1"][name] for name in names if name in state["t1"]])


def submit(state: State, request: SimulatedRequest) -> dict[str, Any]:
    """Write a post."""
    form = request.fields
    name, title = form.get("sr", "").lower(), form.get("title", "")
    if name not in SUBREDDITS:
        raise invalid("SUBREDDIT_NOEXIST", "that subreddit doesn't exist", "sr")
    check_length(title, 300, "title")
    post_id = f"q{len(state['t3']):03d}"
    text = form.get("text", "")
    made = add_post(state, post_id, name, author="helper", title=title, text=text, score=1)
    data = {key: made[key] for key in ("url", "id", "name")}
    return {"json": {"errors": [], "data": data}}


def reply(state: State, request: SimulatedRequest) -> dict[str, Any]:
    """Write a comment on a post or a comment."""
    form = request.fields
    text = form.get("text", "")
    check_length(text, MOST_LETTERS, "text")
    comment_id = f"m{len(state['t1']):03d}"
    made = add_comment(state, comment_id, form.get("thing_id", ""), "helper", text)
    return {"json": {"errors": [], "data": {"things": [{"kind": "t1", "data": made}]}}}


def check_length(text: str, most: int, field: str) -> None:
    """Raise unless a field has text of at most ``most`` characters."""
    if not text.strip() or len(text) > most:
        raise invalid(
            "NO_TEXT" if len(text) <= most else "TOO_LONG", "we need something here", field
        )


def invalid(code: str, text: str, field: str) -> RefusedError:
    """Return the refusal of a form, which Reddit sends with status 200."""
    return RefusedError(200, {"json": {"errors": [[code, text, field]]}})


service = SimulatedService(
    first_state=first_state,
    reads={
        "POST /api/v1/access_token": token,
        "GET /api/v1/me": me,
        "GET /subreddits/popular": popular,
        r"GET /user/([\w-]+)/about": user,
        r"GET /r/(\w+)/about": about,
        r"GET /r/(\w+)/top": top,
        r"GET /r/(\w+)/api/link_flair_v2": lambda *_: [],
        r"GET /comments/(\w+)": thread,
        "GET /api/info": info,
    },
    writes={"POST /api/submit": submit, "POST /api/comment": reply},
    unauthorized={"message": "Unauthorized", "error": 401},
    not_found={"message": "Not Found", "error": 404},
    malformed={"message": "Bad Request", "error": 400},
)
