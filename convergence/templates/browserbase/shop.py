"""Local product pages that are hard to scrape, to replace by your sites.

Start it with ``python shop.py`` and leave it running. It needs only Python. Prices appear late or
in another place. Cookie banners, newsletter forms and advertisements cover the button that shows
them. Advertisements come from another host.
"""

import sys
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = 8812
HYDRATED_MS = 250
"""Delay until a page reacts to clicks."""
COVERED_MS = 100
"""Delay until a cover appears."""


@dataclass(frozen=True)
class ShopProduct:
    """Product of one page."""

    price: str
    """Price as shown; empty if sold out."""
    layout: str = "classic"
    """`redesign`: the class marks an old price; `table`: class and property mark another
    product's.
    """
    delay_ms: int = 0
    """Delay until the price appears."""
    cover: str = ""
    """Covers of the button that shows the price: `cookies`, `letter`, `ad`, separated by spaces.
    """


PRODUCTS = {
    "kettle": ShopProduct("29.90"),
    "lamp": ShopProduct("45.00", delay_ms=600),
    "chair": ShopProduct("119.00", cover="cookies"),
    "desk": ShopProduct("249.00", "redesign"),
    "shelf": ShopProduct("89.50", "table"),
    "stool": ShopProduct("39.90", "redesign", cover="letter"),
    "clock": ShopProduct("24.00", cover="ad"),
    "rug": ShopProduct("", "redesign"),
    "vase": ShopProduct("18.50", "table", cover="cookies"),
    "mirror": ShopProduct("74.00", "redesign", 700),
    "bench": ShopProduct("159.00", cover="letter ad"),
    "basket": ShopProduct("22.00", "table", 400, "cookies"),
    "mug": ShopProduct("7.90", "table", cover="ad"),
    "bowl": ShopProduct("12.40", "redesign", cover="cookies"),
    "plate": ShopProduct("9.80", "table", cover="letter"),
    "spoon": ShopProduct("4.50", delay_ms=500, cover="ad"),
    "towel": ShopProduct("14.90", "redesign", cover="ad"),
    "pillow": ShopProduct("27.00", "table", 700),
    "blanket": ShopProduct("59.00", cover="letter"),
    "curtain": ShopProduct("64.00", "redesign", 300, "letter"),
}

STYLE = """
body { font-family: sans-serif; margin: 2em }
.cookies, .letter, .ad { position: fixed; inset: 0; background: #fffd; padding: 4em }
"""
COVERS = {
    "cookies": "<p>We use cookies.</p><button onclick='this.parentNode.remove()'>Accept</button>",
    "letter": "<p>Our letter?</p><button onclick='this.parentNode.remove()'>No, thanks</button>",
}
LAYOUTS = {
    "classic": "<p><span>Price</span> <b class=price itemprop=price data-price></b></p>",
    "redesign": "<s class=price>99.99</s><p><span>Price</span> <b itemprop=price data-price></b></p>",
    "table": "<p>Goes with it: a candle for <b class=price itemprop=price>3.20</b></p>"
    "<table><tr><th>Price</th><td data-price></td></tr></table>",
}
SCRIPT = """
const show = () => setTimeout(
  () => document.querySelector("[data-price]").textContent = "%(price)s", %(delay_ms)d);
const cover = (name, html) => setTimeout(() => {
  const element = document.createElement("div");
  element.className = name;
  element.innerHTML = html;
  document.body.append(element);
}, %(covered_ms)d);
const button = document.querySelector("main button");
if (button === null) show();
else setTimeout(() => { button.disabled = false; button.onclick = show }, %(hydrated_ms)d);
"""


def page_of(name: str, product: ShopProduct, port: str) -> str:
    """Return the HTML of a product's page."""
    covers = product.cover.split()
    calls = "".join(f'cover("{one}", "{COVERS[one]}");' for one in covers if one in COVERS)
    filled = {
        "price": product.price,
        "delay_ms": product.delay_ms,
        "covered_ms": COVERED_MS,
        "hydrated_ms": HYDRATED_MS,
    }
    return (
        f"<!doctype html><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{name}</title><style>{STYLE}</style><main><h1>A {name}</h1>{LAYOUTS[product.layout]}"
        + ("<button disabled>Show price</button>" if covers else "")
        + f"</main><script>{SCRIPT % filled}{calls}</script>"
        + (f"<script src='http://ads.localhost:{port}/ad.js'></script>" if "ad" in covers else "")
    )


class ShopHandler(BaseHTTPRequestHandler):
    """Handler of ``GET /NAME``, a product's page, and ``GET /ad.js``, an advertisement."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise the second write of an answer waits 40 ms

    def do_GET(self) -> None:
        """Answer one request."""
        name = self.path.strip("/")
        if name == "ad.js":
            status, kind, text = 200, "text/javascript", 'cover("ad", "<p>Buy a second one!</p>");'
        elif name in PRODUCTS:
            text = page_of(name, PRODUCTS[name], self.headers["Host"].rpartition(":")[2])
            status, kind = 200, "text/html"
        else:
            status, kind, text = 404, "text/plain", f"There is no {name!r}."
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Log nothing."""


def main() -> None:
    """Serve until Ctrl-C."""
    port = int(sys.argv[1]) if len(sys.argv) > 1 else PORT
    with ThreadingHTTPServer(("127.0.0.1", port), ShopHandler) as server:
        print(f"serving http://127.0.0.1:{server.server_port}/kettle", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("stopped")


if __name__ == "__main__":
    main()
