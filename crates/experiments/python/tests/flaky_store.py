"""A store that fails now and then: `python flaky_store.py FOLDER` serves files over HTTP, and
addresses `flaky://host:port/file` have them by fsspec."""

import http.server
import io
import random
import sys
import urllib.request

from fsspec.spec import AbstractFileSystem

#: It fails one request in so many.
FAILS = 10
PORT = 8000


class Flaky(AbstractFileSystem):
    """Its files for fsspec, by the standard library alone."""

    protocol = "flaky"

    def _open(self, path, mode="rb", **_):
        address = f"http://{self._strip_protocol(path)}"
        with urllib.request.urlopen(address, timeout=5) as got:
            return io.BytesIO(got.read())

    def info(self, path, **_):
        return {"name": path, "type": "file", "size": None}


class Store(http.server.SimpleHTTPRequestHandler):
    rng = random.Random(0)

    def do_GET(self):
        if self.rng.randrange(FAILS) == 0:
            self.send_error(503, "try again")
        else:
            super().do_GET()

    def log_message(self, *_):
        pass


def main(host, folder):
    def handler(*args):
        Store(*args, directory=folder)

    http.server.ThreadingHTTPServer((host, PORT), handler).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
