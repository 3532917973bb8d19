"""Reddit's HTTP API on this machine, in place of the real one.

It answers what Agno's ``RedditTools`` asks by PRAW, in the forms that Reddit documents, and keeps what it is told. Each
client has a Reddit of its own, which begins as ``SUBREDDITS`` says.
"""

from typing import Any
from urllib.parse import parse_qs

from convergence.testing import RefusedError, SimulatedRequest, SimulatedService

MOST_LETTERS = 40_000
"""In a text, as at Reddit."""
BEGUN = 1_747_000_000
"""When it all was written, in seconds."""

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
"""User → karma of comments, and of posts."""


def first_state() -> dict[str, Any]:
    """Return subreddits by name, and posts and comments by their ids."""
    posts, n = {}, 0
    for name, (_, _, written) in SUBREDDITS.items():
        for one in written:
            posts[f"p{n:03d}"] = post(f"p{n:03d}", name, one)
            n += 1
    comments = {
        "k000": comment("k000", posts["p000"], "t3_p000", "alan", "Is it a laser printer?")
    }
    return {"posts": posts, "comments": comments, "next": 0}


def post(post_id: str, name: str, written: tuple[str, str, str, int]) -> dict[str, Any]:
    """Return a post in Reddit's form; of what was written: author, title, text and score."""
    author, title, text, score = written
    link = f"/r/{name}/comments/{post_id}/"
    return {
        "id": post_id, "name": f"t3_{post_id}", "title": title, "selftext": text, "score": score,
        "author": author, "subreddit": name, "subreddit_name_prefixed": f"r/{name}", "is_self": True,
        "permalink": link, "url": f"https://www.reddit.com{link}", "created_utc": BEGUN + score,
        "link_flair_text": None, "num_comments": 0, "over_18": False,
    }  # fmt: skip


def comment(
    comment_id: str, of: dict[str, Any], parent: str, author: str, text: str
) -> dict[str, Any]:
    """Return a comment in Reddit's form."""
    return {
        "id": comment_id, "name": f"t1_{comment_id}", "body": text, "score": 1, "author": author,
        "subreddit": of["subreddit"], "link_id": of["name"], "parent_id": parent,
        "permalink": f"{of['permalink']}{comment_id}/", "created_utc": BEGUN, "replies": "",
    }  # fmt: skip


def subreddit(name: str) -> dict[str, Any]:
    """Return a subreddit in Reddit's form."""
    title, subscribers, _ = SUBREDDITS[name]
    return {
        "id": f"2q{sorted(SUBREDDITS).index(name)}", "name": f"t5_{name}", "display_name": name, "title": title,
        "description": f"{title}. Be kind, and write in whole sentences.", "public_description": title,
        "subscribers": subscribers, "active_user_count": subscribers // 100, "created_utc": BEGUN,
        "over18": False, "url": f"/r/{name}/",
    }  # fmt: skip


def listing(kind: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return things as a page of Reddit's."""
    children = [{"kind": kind, "data": one} for one in found]
    return {
        "kind": "Listing",
        "data": {"children": children, "after": None, "before": None, "dist": len(found)},
    }


NOT_FOUND = {"message": "Not Found", "error": 404}
State = dict[str, Any]


def token(state: State, request: SimulatedRequest) -> dict[str, Any]:
    """Return the token of a client: its id."""
    return {
        "access_token": request.token, "token_type": "bearer", "expires_in": 86_400, "scope": "*",
    }  # fmt: skip


def me(state: State, request: SimulatedRequest) -> dict[str, Any]:
    """Return the user of the client."""
    return {**user(state, request, "helper")["data"], "features": {}}


def user(state: State, request: SimulatedRequest, name: str) -> dict[str, Any]:
    """Return a user."""
    of_comments, of_posts = USERS[known(name, USERS)]
    data = {
        "id": f"u{sorted(USERS).index(name)}", "name": name, "comment_karma": of_comments, "link_karma": of_posts,
        "is_mod": False, "is_gold": False, "is_employee": False, "created_utc": BEGUN,
    }  # fmt: skip
    return {"kind": "t2", "data": data}


def popular(state: State, request: SimulatedRequest) -> dict[str, Any]:
    """Return the subreddits with the most subscribers."""
    names = sorted(SUBREDDITS, key=lambda name: -SUBREDDITS[name][1])
    return listing("t5", [subreddit(name) for name in names][: limit_of(request)])


def about(state: State, request: SimulatedRequest, name: str) -> dict[str, Any]:
    """Return a subreddit."""
    return {"kind": "t5", "data": subreddit(known(name.lower(), SUBREDDITS))}


def flairs(state: State, request: SimulatedRequest, name: str) -> list[Any]:
    """Return the flairs of a subreddit: none has any."""
    known(name.lower(), SUBREDDITS)
    return []


def top(state: State, request: SimulatedRequest, name: str) -> dict[str, Any]:
    """Return the posts of a subreddit with the highest scores."""
    place = known(name.lower(), SUBREDDITS)
    posts = [one for one in state["posts"].values() if one["subreddit"] == place]
    return listing("t3", sorted(posts, key=lambda one: -one["score"])[: limit_of(request)])


def thread(state: State, request: SimulatedRequest, post_id: str) -> list[Any]:
    """Return a post with its comments."""
    of = state["posts"][known(post_id, state["posts"])]
    replies = [one for one in state["comments"].values() if one["link_id"] == of["name"]]
    return [listing("t3", [of]), listing("t1", replies)]


def info(state: State, request: SimulatedRequest) -> dict[str, Any]:
    """Return comments by their names."""
    wanted = [name.removeprefix("t1_") for name in request.query.get("id", "").split(",")]
    comments = state["comments"]
    return listing("t1", [comments[one] for one in wanted if one in comments])


def submit(state: State, request: SimulatedRequest) -> dict[str, Any]:
    """Write a post."""
    form = form_of(request)
    name, title, text = form.get("sr", "").lower(), form.get("title", ""), form.get("text", "")
    if name not in SUBREDDITS:
        raise invalid("SUBREDDIT_NOEXIST", "that subreddit doesn't exist", "sr")
    check_length(title, 300, "title")
    if len(text) > MOST_LETTERS:
        raise invalid("TOO_LONG", "this is too long", "text")
    state["next"] += 1
    made = post(f"q{state['next']:03d}", name, ("helper", title, text, 1))
    state["posts"][made["id"]] = made
    data = {"url": made["url"], "id": made["id"], "name": made["name"]}
    return {"json": {"errors": [], "data": data}}


def reply(state: State, request: SimulatedRequest) -> dict[str, Any]:
    """Write a comment on a post or a comment."""
    form = form_of(request)
    parent, text = form.get("thing_id", ""), form.get("text", "")
    check_length(text, MOST_LETTERS, "text")
    post_name = parent
    if parent.startswith("t1_"):
        comment_id = known(parent.removeprefix("t1_"), state["comments"])
        post_name = state["comments"][comment_id]["link_id"]
    of = state["posts"][known(post_name.removeprefix("t3_"), state["posts"])]
    state["next"] += 1
    made = comment(f"m{state['next']:03d}", of, parent, "helper", text)
    state["comments"][made["id"]] = made
    return {"json": {"errors": [], "data": {"things": [{"kind": "t1", "data": made}]}}}


def known(name: str, names: dict[str, Any]) -> str:
    """Return a name that exists."""
    if name not in names:
        raise RefusedError(404, NOT_FOUND)
    return name


def limit_of(request: SimulatedRequest) -> int:
    """Return the limit of a page, as Reddit reads it: 25 by default, 100 at most."""
    text = request.query.get("limit", "")
    return min(100, int(text)) if text.isdigit() and int(text) else 25


def form_of(request: SimulatedRequest) -> dict[str, str]:
    """Return the fields of a form."""
    fields = parse_qs(request.body.decode("utf-8", "replace"))
    return {name: values[0] for name, values in fields.items()}


def check_length(text: str, most: int, field: str) -> None:
    """Refuse an empty field, and one that is too long."""
    if not text.strip() or len(text) > most:
        code = "TOO_LONG" if text.strip() else "NO_TEXT"
        raise invalid(code, "we need something here", field)


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
        r"GET /r/(\w+)/api/link_flair_v2": flairs,
        r"GET /comments/(\w+)": thread,
        "GET /api/info": info,
    },
    writes={"POST /api/submit": submit, "POST /api/comment": reply},
    unauthorized={"message": "Unauthorized", "error": 401},
    not_found=NOT_FOUND,
)
