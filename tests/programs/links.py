"""Network namespaces of a client and of stores, and links between them that can be harmed.

All bytes of a link pass a proxy of this process, which has a socket in either namespace: it delays
them, holds them back in either direction, or cuts all connections. A link can also go dark: the
interface of the store's side is down, and packets are lost without a word.
"""

import contextlib
import ctypes
import os
import socket
import struct
import subprocess
import threading
import time

CLONE_NEWNET = 0x40000000
PORT = 7000
#: How long the proxy's calls wait before they look again whether the link is harmed.
LOOK_S = 0.02
WAYS = ("to the store", "to the client")


def run(*words, check=True):
    return subprocess.run([str(word) for word in words], check=check, capture_output=True)


@contextlib.contextmanager
def inside(namespace):
    """Sockets that this thread makes meanwhile are in the namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net") as home, open(f"/run/netns/{namespace}") as there:
        for entered in (there, home):
            if libc.setns(entered.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"setns into {namespace}")
            if entered is there:
                try:
                    yield
                except BaseException:
                    libc.setns(home.fileno(), CLONE_NEWNET)
                    raise


class Link(threading.Thread):
    """The link to one store. `ends` are the namespace and address of the client's end, where the
    proxy listens, and of the store's end, where it connects to."""

    def __init__(self, ends):
        super().__init__(daemon=True)
        (self.near, at), self.far = ends
        self.lock = threading.Lock()
        self.connections = []
        self.is_cut, self.is_over = False, False
        self.delay_s = 0.0
        self.held = set()  # ways in which nothing passes
        self.count = 0
        with inside(self.near):
            self.listener = socket.create_server(at, backlog=64)
        self.listener.settimeout(LOOK_S)

    def run(self):
        while not self.is_over:
            try:
                client = self.listener.accept()[0]
            except TimeoutError:
                continue
            except OSError:
                return
            threading.Thread(target=self.connect, args=(client,), daemon=True).start()

    def connect(self, client):
        with inside(self.far[0]):
            store = socket.socket()
        try:
            if self.is_cut:
                raise ConnectionError
            store.settimeout(5)
            store.connect(self.far[1])
        except OSError:
            client.close()
            store.close()
            return
        connection = Connection(self, client, store)
        with self.lock:
            self.connections = [one for one in self.connections if not one.is_over()]
            self.connections.append(connection)
            self.count += 1
        connection.start()

    def each(self):
        with self.lock:
            return list(self.connections)

    def cut(self, abruptly):
        """Ends all connections, and refuses others until it is mended."""
        self.is_cut = True
        for connection in self.each():
            connection.end(abruptly)

    def hold(self, ways):
        """Holds back what goes these ways, on all connections until it is mended."""
        self.held = set(ways)

    def hold_old(self, ways):
        """Holds back what goes these ways on the connections that there are: they look dead, others
        are made, and what was on its way arrives late, once the link is mended."""
        for connection in self.each():
            connection.held = set(ways)

    def mend(self):
        self.is_cut, self.delay_s, self.held = False, 0.0, set()
        for connection in self.each():
            connection.held = set()

    def close(self):
        self.is_over = True
        self.cut(True)
        self.listener.close()


class Connection:
    """Two halves, each with a thread: one side may be gone while the other is still told things."""

    def __init__(self, link, client, store):
        self.link, self.held, self.sides, self.open = link, set(), (client, store), 2
        for side in self.sides:
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            side.settimeout(None)

    def start(self):
        client, store = self.sides
        for way, source, sink in ((WAYS[0], client, store), (WAYS[1], store, client)):
            threading.Thread(target=self.pump, args=(way, source, sink), daemon=True).start()

    def is_over(self):
        return self.open == 0

    def pump(self, way, source, sink):
        try:
            while data := source.recv(1 << 16):
                if self.link.delay_s:
                    time.sleep(self.link.delay_s)
                while way in self.held | self.link.held:
                    time.sleep(LOOK_S)
                    if self.link.is_over:
                        return
                sink.sendall(data)
        except OSError:
            pass
        finally:
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_WR)
            with contextlib.suppress(OSError):
                source.shutdown(socket.SHUT_RD)
            with self.link.lock:
                self.open -= 1
                last = self.open == 0
            if last:
                for side in self.sides:
                    side.close()

    def end(self, abruptly):
        for side in self.sides:
            with contextlib.suppress(OSError):
                if abruptly:
                    # The other side gets a reset.
                    side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                side.shutdown(socket.SHUT_RDWR)


class Net:
    """A namespace for the client and one for each store, with a hub between them that forwards
    nothing. `sealed` tells whether both sides prove keys: without, they talk over loopback alone,
    and the proxy is all that there is between their namespaces."""

    def __init__(self, stores, sealed):
        tag = f"mle{os.getpid() % 100000}"
        self.sealed = sealed
        self.client, self.hub = f"{tag}c", f"{tag}h"
        self.stores = [f"{tag}s{nth}" for nth in range(stores)]
        self.kept = contextlib.ExitStack()
        self.links = []

    def __enter__(self):
        try:
            for name in (self.client, self.hub, *self.stores):
                run("ip", "netns", "add", name)
                self.kept.callback(run, "ip", "netns", "del", name, check=False)
                run("ip", "-n", name, "link", "set", "lo", "up")
            for nth, name in enumerate((self.client, *self.stores)):
                run("ip", "-n", self.hub, "link", "add", f"v{nth}", "type", "veth", "peer", "name",
                    "eth", "netns", name)
                run("ip", "-n", self.hub, "addr", "add", f"10.79.{nth}.1/24", "dev", f"v{nth}")
                run("ip", "-n", name, "addr", "add", f"10.79.{nth}.2/24", "dev", "eth")
                run("ip", "-n", self.hub, "link", "set", f"v{nth}", "up")
                run("ip", "-n", name, "link", "set", "eth", "up")
            for nth in range(len(self.stores)):
                link = Link(self.ends(nth))
                self.kept.callback(link.close)
                link.start()
                self.links.append(link)
        except BaseException:
            self.kept.close()
            raise
        return self

    def __exit__(self, *_):
        self.kept.close()

    def ends(self, nth):
        near = ("10.79.0.1", self.hub) if self.sealed else ("127.0.0.1", self.client)
        far = self.hub if self.sealed else self.stores[nth]
        return (near[1], (near[0], PORT + 1 + nth)), (far, self.listens(nth))

    def listens(self, nth):
        """Where the server of a store listens, in the store's namespace."""
        return (f"10.79.{nth + 1}.2" if self.sealed else "127.0.0.1", PORT)

    def seen(self, nth):
        """The address of a store as the client has it."""
        host, port = self.ends(nth)[0][1]
        return f"tcp:{host}:{port}"

    def dark(self, nth):
        """No packet passes between the hub and the store."""
        run("ip", "-n", self.stores[nth], "link", "set", "eth", "down")

    def light(self, nth):
        run("ip", "-n", self.stores[nth], "link", "set", "eth", "up")

    def mend(self):
        for nth, link in enumerate(self.links):
            link.mend()
            self.light(nth)

    @staticmethod
    def command(namespace, words):
        """A command whose sockets are in the namespace; mounts are everybody's."""
        return ["nsenter", f"--net=/run/netns/{namespace}", *map(str, words)]
