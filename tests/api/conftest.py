"""Both applications of the server in one process, without sockets: requests go straight into ASGI."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import random
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import jsonschema_rs
import msgspec
import pytest
from tests.conftest import all_suspects, hasty

from lodesman.base.errors import BackendFault
from lodesman.decide.director.iteration import Excess
from lodesman.decide.director.options import read_options
from lodesman.decide.director.orders import PoolState
from lodesman.decide.matching.policy import Policy, VOConfig
from lodesman.decide.resources import QueueId, ResourceConfig, load_resources
from lodesman.server.engines.backend import BatchLoad
from lodesman.server.http.hot import HotApp, InnerApp
from lodesman.server.http.openapi import document
from lodesman.server.http.read_side import ReadSide
from lodesman.server.http.reads import ReadApp
from lodesman.server.live.core import Core, PilotTerms
from lodesman.server.loops.cancelling import Canceller
from lodesman.server.loops.direct import Director
from lodesman.server.loops.site_matching import KnownWishes, SiteMatcher
from lodesman.server.loops.snapshot import SnapshotKeeper
from lodesman.server.store import Database
from lodesman.server.store.accounts import set_service_token
from lodesman.server.store.journal import Change
from lodesman.server.store.quotas import quota_sets
from lodesman.server.store.shelf import Shelf
from lodesman.server.store.site_ads import ended_matches, live_matches
from lodesman.server.store.transaction import Transaction
from lodesman.server.writer.accounts import add_account, issue_site_token, issue_token
from lodesman.server.writer.job_classes import ClassRules, load_classes
from lodesman.server.writer.live import WriterState
from lodesman.server.writer.order import end_batch
from lodesman.server.writer.pilots import hash_token
from lodesman.server.writer.quotas import QuotaRules
from lodesman.server.writer.site_ads import KnownAds
from lodesman.server.writer.submit_pools import number_at_start, number_queues
from lodesman.wire import inner_calls
from lodesman.wire.accounts import SCOPES
from lodesman.wire.call import Call, Nothing, encode
from lodesman.wire.client.exchange import HttpAnswer, fault_of
from lodesman.wire.job_classes import JobClassSection
from lodesman.wire.jsv import VerifyBody
from lodesman.wire.vocabulary import StartFault

PATIENCE = 60.0
SANDBOX_BYTES = 10_000
RESOURCES = """
[job_description]
Software = "list"

[site."North"]
Platform = "el9"
VO = ["lab"]
[site."North".ce."ce.north".queue.short]
Slots = 2
NumberOfProcessors = 4
CPUTime = 1000
Memory = 2000
Tag = ["SSD"]
Software = ["root", "geant"]

[site."South"]
Platform = "el8"
VO = ["lab"]
[site."South".ce."ce.south".queue.long]
Slots = 1
NumberOfProcessors = 1
CPUTime = 100000
Memory = 8000

[site."Far"]
VO = ["other"]
[site."Far".ce."ce.far".queue.q]
Slots = 1
CPUTime = 1000

[group.physics]
vo = "lab"
share = 3000
[group.bio]
vo = "lab"
share = 1000
[group.open]
vo = "lab"
job_sharing = true
[group.guests]
vo = "other"
"""


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of an error; every refusal has one, with a sentence."""
        error = self.json["error"]
        assert error["message"].strip()
        return str(error["code"])


class Described:
    """The OpenAPI document as a judge of answers: what it does not describe may not be in one."""

    def __init__(self) -> None:
        told = deepcopy(document())
        for schema in told["components"]["schemas"].values():
            if "properties" in schema:
                schema["additionalProperties"] = False
        self.components = told["components"]
        self.calls = {
            (method.upper(), path): operation
            for path, item in told["paths"].items()
            for method, operation in item.items()
        }
        # Those that are spelled out before those with names in them.
        patterns = sorted({path for _, path in self.calls}, key=lambda path: path.count("{"))
        self._patterns = [(re.compile(re.sub(r"{\w+}", "[^/]+", path)), path) for path in patterns]
        self._checks: dict[str, Any] = {}

    def template(self, method: str, path: str) -> str:
        """The path as the document has it, '' if there is no such call."""
        for pattern, template in self._patterns:
            if pattern.fullmatch(path) and (method, template) in self.calls:
                return template
        return ""

    def schema(self, method: str, template: str, answer: Answer) -> Any:
        """What the document says of such an answer."""
        found = self.calls[method, template]["responses"][str(answer.status)]
        if "$ref" in found:
            found = self.components["responses"][found["$ref"].rpartition("/")[2]]
        if "content" not in found:
            assert answer.body == b""
            return TEXT
        return found["content"][answer.headers["content-type"].partition(";")[0]]["schema"]

    def hold(self, method: str, path: str, answer: Answer) -> None:
        """Raises KeyError for a status or a media type, ValidationError for members that are not described."""
        template = self.template(method, path)
        if template:
            schema = self.schema(method, template, answer)
            if schema.get("type") != "string":
                self.check(schema).validate(answer.json)

    def check(self, schema: Any) -> Any:
        """The validator of a schema."""
        key = json.dumps(schema)
        if key not in self._checks:
            self._checks[key] = jsonschema_rs.validator_for({**schema, "components": self.components})
        return self._checks[key]


TEXT = {"type": "string"}
judge = cache(Described)


class Connection:
    """One request's receive and send; what is sent after the body is awaited, as a server does."""

    def __init__(self, chunks: list[bytes | None]) -> None:
        self._chunks = chunks
        self.gone = asyncio.Event()
        self.sent: list[dict[str, Any]] = []
        self._stalls = False
        self._goes_on = asyncio.Event()
        self._said = asyncio.Event()
        self._takes = asyncio.Event()
        self._takes.set()

    def stall_after(self, parts: int) -> None:
        """The client stops sending after this number of parts, and stays connected."""
        self._chunks[parts:] = []
        self._stalls = True

    def go_on(self, *chunks: bytes) -> None:
        """The client sends the rest."""
        self._chunks += chunks
        self._stalls = False
        self._goes_on.set()

    async def stop_taking(self, *, after: int) -> None:
        """From now on the client reads nothing; returns when the server has sent this number of messages."""
        self._takes.clear()
        while len(self.sent) < after:
            self._said.clear()
            await self._said.wait()

    async def told(self, text: bytes) -> None:
        """Returns when the server has sent that."""
        while text not in b"".join(one.get("body", b"") for one in self.sent):
            self._said.clear()
            await self._said.wait()

    def take_again(self) -> None:
        self._takes.set()

    async def receive(self) -> dict[str, Any]:
        if self._chunks:
            body = self._chunks.pop(0)
            if body is None:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": body, "more_body": bool(self._chunks) or self._stalls}
        waits = [asyncio.ensure_future(one.wait()) for one in (self.gone, self._goes_on)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
        self._goes_on.clear()
        return await self.receive() if self._chunks else {"type": "http.disconnect"}

    def break_off_after(self, parts: int) -> None:
        """The client disconnects after this number of parts of its body; more were announced."""
        self._chunks[parts:] = [None]

    async def send(self, message: Any) -> None:
        self.sent.append(dict(message))
        self._said.set()
        if message["type"] == "http.response.body":
            await self._takes.wait()

    def answer(self) -> Answer:
        start = self.sent[0]
        headers = {name.decode(): value.decode() for name, value in start["headers"]}
        body = b"".join(part.get("body", b"") for part in self.sent[1:])
        return Answer(start["status"], headers, body)


@cache
def resources() -> ResourceConfig:
    """The resources of every test, read once."""
    return load_resources([("sites.toml", RESOURCES)])


@cache
def _configured(bits: frozenset[tuple[QueueId, int]]) -> dict[str, VOConfig]:
    """What the resources are to each VO, made once."""
    policy = Policy(resources(), bits=dict(bits))
    return {vo: policy.vo_config(vo) for vo in ("lab", "other")}


def policy_of(bits: Mapping[QueueId, int]) -> Policy:
    """A policy of the resources."""
    policy = Policy(resources(), bits=bits)
    policy._of_vo.update(_configured(frozenset(bits.items())))
    return policy


class House:
    """The server without its processes: `now` and `ticks` are set by the test, `call` asks a question."""

    def __init__(self, home: Path, database: Database, *, lease: float = 1_800.0) -> None:
        self.now, self.ticks = 1_000_000.0, 5_000.0
        self.loop = asyncio.new_event_loop()
        self._writer = hasty(database.writer())
        self._number(resources())
        live = WriterState(self._writer, rng=random.Random(5), now=self.now, ticks=lambda: self.ticks)
        policy = policy_of(live.pools.bits)
        live.queues.matcher.lottery.set_shares(policy.shares())
        self.shelf = Shelf(home / "sandboxes", limit_bytes=SANDBOX_BYTES)
        self.core = Core(
            writer=self._writer, live=live, policy=policy,
            quotas=QuotaRules(live, quota_sets(self._writer), policy.vocabulary),
            job_classes=ClassRules(load_classes(self._writer, policy.vocabulary, JobClassSection())),
            terms=PilotTerms(lease_seconds=lease, heartbeat_seconds=60.0, idle_seconds=120.0, sandbox_mb=7),
            clock=lambda: self.now, ticks=lambda: self.ticks,
            at_end=partial(end_batch, live), verify=self._ask_verifier,
            shelf=self.shelf,
        )  # fmt: skip
        self.side = ReadSide(
            db=database.reader(), policy=policy, shelf=self.shelf, clock=lambda: self.now,
            keeper=SnapshotKeeper(database.reader()), patience=0.0, ask_hot=self._ask_hot,
            classes=lambda db: load_classes(db, self.side.policy.vocabulary, JobClassSection()),
        )  # fmt: skip
        self.reads = ReadApp(self.side)
        self.app = HotApp(self.core, self.reads)
        self.core.strangers.most = 10**9  # tests ask more often than strangers may
        self.inner = InnerApp(self.core)
        self.run(self._start())
        self.tokens: dict[str, str] = {}
        self.pilots = self.claims = 0
        # What the test stored is nothing that the program would store, so answers are not as described.
        self.made_up = False

    def edit_record(self, edit: Callable[[Any], object]) -> None:
        """Change what is stored of the director's iteration, as JSON values."""
        plan = json.loads(self._writer.only("SELECT plan FROM director_iteration")[0])
        edit(plan)
        self._writer.change("UPDATE director_iteration SET plan = ?", (json.dumps(plan),))

    def _number(self, configured: ResourceConfig) -> None:
        """Give the queues their bits, as a start does."""
        with self._writer:
            tx = Transaction(self._writer, self.now)
            number_at_start(tx, list(configured.tree.queue_ids()))
            tx.flush()

    def policy(self, configured: ResourceConfig, **given: Any) -> Policy:
        """The policy of another configuration, as the server takes it in: its new queues get bits."""
        bits = self.do(Change(number_queues, self.core.live, list(configured.tree.queue_ids())))
        return Policy(configured, bits=bits, **given)

    async def _start(self) -> None:
        self.core.start()

    async def _nothing(self) -> None:
        """The daemon's part."""

    async def _ask_verifier(self, body: VerifyBody) -> Any:
        return await self._ask_hot(inner_calls.VERIFY, body, app=self.reads)

    async def _ask_hot(self, call: Call[Nothing, Any, Any], body: Any, **more: Any) -> Any:
        task, connection = self.open(
            call.method, call.path, encode(body) if call.has_body else None, token="service", **more
        )
        await task
        answer = connection.answer()
        if answer.status != 200:
            raise fault_of(HttpAnswer(answer.status, "", answer.body))
        return call.read(answer.body)

    def post(self, call: Call[Nothing, Any, Any], body: Any) -> Any:
        """What the background process asks, as it travels: through JSON."""
        return self.run(self._ask_hot(call, body))

    def close(self) -> None:
        self.core.journal.close()
        self.run(asyncio.sleep(0))
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.run(asyncio.sleep(0))
        self.run(self.loop.shutdown_default_executor())  # a thread may still read
        self.loop.close()
        self.side.verifier.close()
        for db in (*self.core.readers, self.side.db, self._writer):
            db.close()

    def run(self, what: Any) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(what, PATIENCE))

    # --- who is there ---------------------------------------------------------------------------------

    def do(self, command: Any) -> Any:
        return self.run(self.core.commands.run(command))

    def user(
        self, name: str, *groups: str, vo: str = "lab", admin: bool = False, vo_admin: bool = False, **more: Any
    ) -> str:  # fmt: skip
        """A user; the token is kept under the name."""
        self.do(Change(add_account, name, vo, groups or ("physics",), admin=admin, vo_admin=vo_admin))
        scopes = {"scopes": SCOPES} if admin or vo_admin else {}
        self.tokens[name] = str(self.do(Change(issue_token, name, **{**scopes, **more})))
        return self.tokens[name]

    def site(self, name: str) -> str:
        """The name of a token with which this site advertises itself."""
        self.tokens[f"site {name}"] = str(self.do(Change(issue_site_token, name)))
        return f"site {name}"

    def service(self) -> None:
        """The token of the background process."""

        class Make:
            def apply(self, tx: Transaction) -> None:
                set_service_token(tx, hash_token("service-token"))

        self.do(Make())
        self.tokens["service"] = "service-token"

    def prepare_pilot(self, site: str = "North", *, group: str = "", **request: Any) -> str:
        """A pilot as the director stores it, submitted; returns its join token. `group`: the only one that it serves.

        `request` names the CE and the queue of another site.
        """
        self.pilots += 1
        stamp = f"stamp{self.pilots}"
        ce, queue = {"North": ("ce.north", "short"), "South": ("ce.south", "long")}.get(site, ("", ""))
        offer = {
            "vo": "lab", "site": site, "ce": ce, "queue": queue, "cores": 4, "memory_mb": 2000,
            "platforms": ["el9" if site == "North" else "el8"],
            "norm_cpu_seconds": 1000 if site == "North" else 100_000, **request,
        }  # fmt: skip
        row = {
            "stamp": stamp, "vo": offer["vo"], "site": site, "ce": offer["ce"], "queue": offer["queue"],
            "request": offer, "group": group,
            "join_hash": base64.b64encode(hash_token(f"join-{stamp}")).decode(),
        }  # fmt: skip
        assert self.call("POST", "/v1/service/pilots", [row], token="service").status == 200
        self.call("POST", "/v1/service/submitted", {stamp: [f"native-{stamp}", ""]}, token="service")
        return f"join-{stamp}"

    def pilot(self, site: str = "North", *, node: Any = None, **request: Any) -> str:
        """A pilot that has joined; returns the name of its token."""
        joined = self.call(
            "POST", "/v1/pilots/join",
            {"join_token": self.prepare_pilot(site, **request), "nonce": "n", "node": node or {"cores": 4}},
        )  # fmt: skip
        assert joined.status == 200, joined.body
        name = f"pilot{joined.json['pilot']}"
        self.tokens[name] = joined.json["token"]
        return name

    def director(self, backend: ScriptedBackend) -> Director:
        """A director that talks to this backend; its threads are the caller's."""
        options, watches = read_options({}), {"local": cast("Any", backend)}

        def note(queue: QueueId, fault: StartFault | None, reason: str) -> None:
            director.note_outcome(queue, accepted=fault is None, reason=reason, now=self.now)

        def cancel(excess: Excess) -> None:
            cancelling.order(excess)
            cancelling.tick()

        cancelling = Canceller(self.side.db, self.post, note, watches)
        pools = {name: PoolState(name=name, running=0, queued=0, max=5, total=50) for name in options.pools}
        director = Director(
            db=self.side.db, policy=self.side.policy, options=options, watches=watches, post=self.post,
            pools=lambda: pools, launch=lambda *_: None, cancel=cancel, rng=random.Random(7),
            sites=SiteMatcher(
                ads=KnownAds().look, live=live_matches, ended=ended_matches, wishes=KnownWishes().look
            ),
        )  # fmt: skip
        return director

    # --- asking ---------------------------------------------------------------------------------------

    def open(self, method: str, path: str, body: Any = None, *, token: str = "", **more: Any) -> Any:
        """A request under way: (task, connection)."""
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        given = {"authorization": f"Bearer {self.tokens.get(token, token)}"} if token else {}
        given |= {"content-length": str(len(raw))} | more.get("headers", {})
        plain, _, query = path.partition("?")
        scope = {
            "type": "http", "method": method, "path": unquote(plain), "raw_path": plain.encode(),
            "query_string": query.encode(), "root_path": "", "scheme": "http", "http_version": "1.1",
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in given.items()],
            "server": ("127.0.0.1", 7777), "client": ("127.0.0.1", 5), "asgi": {"version": "3.0"},
        }  # fmt: skip
        connection = Connection(more.get("chunks") or [raw])
        # What is the server's own comes on a Unix socket, unless a stranger asks.
        inside = plain.startswith("/v1/service/") and not more.get("public")
        app = more.get("app", self.inner if inside else self.app)
        task = self.loop.create_task(app(scope, connection.receive, connection.send))
        return task, connection

    def call(self, method: str, path: str, body: Any = None, *, token: str = "", **more: Any) -> Answer:
        """Ask and wait for the answer, which must be as described; `token` is a name known here, or a token itself."""
        task, connection = self.open(method, path, body, token=token, **more)
        self.run(task)
        answer = connection.answer()
        forward: object = self.app.forward
        if not self.made_up and forward is self.reads:
            judge().hold(method, path.partition("?")[0], answer)
        return answer

    def get(self, path: str, token: str = "ann", **more: Any) -> Any:
        """The JSON of a GET that must succeed."""
        answer = self.call("GET", path, token=token, **more)
        assert answer.status == 200, answer.body
        return answer.json

    def submit(self, *jobs: dict[str, Any], token: str = "ann", **body: Any) -> Answer:
        """Submit records, each /bin/true unless it says otherwise."""
        if not {"text", "texts"} & set(body):
            body["jobs"] = [{"Executable": "/bin/true", "CPUTime": 500, **job} for job in jobs or ({},)]
        return self.call("POST", "/v1/jobs", body, token=token)

    def submitted(self, *jobs: dict[str, Any], token: str = "ann", **body: Any) -> int:
        """Submit what must be accepted; returns the first id."""
        answer = self.submit(*jobs, token=token, **body)
        assert answer.status == 200, answer.body
        return int(answer.json["first"])

    def claim_body(self, count: int = 1, **more: Any) -> dict[str, Any]:
        self.claims += 1
        free = {"cores": 4, "memory_mb": 2000, "norm_cpu_seconds": 0}
        return {"claim_token": f"claim-token-{self.claims}", "count": count, "resource": free, **more}

    def claim(self, pilot: str, count: int = 1, **more: Any) -> list[dict[str, Any]]:
        answer = self.call("POST", "/v1/pilots/claim", self.claim_body(count, **more), token=pilot)
        assert answer.status == 200, answer.body
        return list(answer.json["jobs"])

    def report(self, pilot: str, job: dict[str, Any], state: str = "Done", **more: Any) -> dict[str, Any]:
        one = {"id": job["id"], "attempt": job["attempt"], "state": state, **more}
        answer = self.call("POST", "/v1/pilots/report", {"reports": [one]}, token=pilot)
        assert answer.status == 200, answer.body
        return dict(answer.json["results"][0])

    def hand_in(self, pilot: str, job: dict[str, Any], content: bytes) -> Answer:
        """Upload the output of an attempt, which its report names as this answers."""
        path = f"/v1/jobs/{job['id']}/attempts/{job['attempt']}/output"
        digest = {"x-sha256": hashlib.sha256(content).hexdigest()}
        return self.call("PUT", path, content, token=pilot, headers=digest)

    def control(self, action: str, first: int, last: int | None = None, **more: Any) -> Answer:
        ranges = [[first, first if last is None else last]]
        body = {"action": action, "ranges": ranges, "reason": more.get("reason", "")}
        return self.call("POST", "/v1/jobs/control", body, token=more.get("token", "ann"))

    def reconcile(self) -> dict[str, int]:
        """A complete run of the reconciler: the number of repairs of each kind."""
        body = msgspec.to_builtins(all_suspects(self.side.db))
        answer = self.call("POST", "/v1/service/reconcile", body, token="service")
        assert answer.status == 200, answer.body
        return dict(answer.json)

    def upload(self, content: bytes, *, sha256: str = "", token: str = "ann") -> Answer:
        digest = sha256 or hashlib.sha256(content).hexdigest()
        return self.call("POST", "/v1/sandboxes", content, token=token, headers={"x-sha256": digest})

    def counted(self) -> int:
        """All jobs that the server knows."""
        return sum(row["jobs"] for row in self.get("/v1/jobs/counts", "admin")["counts"])


class ScriptedBackend:
    """A batch system that is as full as the test says."""

    queues = ()

    def __init__(self, *, waiting: int | None = 0, running: int | None = 0) -> None:
        self.waiting, self.running, self.backend, self.is_away = waiting, running, self, False
        self.now = 1_000_000.0

    def load(self, queue: Any) -> BatchLoad:
        return BatchLoad(
            waiting=self.waiting, running=self.running, others_waiting=0, others_running=0, observed_at=self.now,
            slots=100,
        )  # fmt: skip

    def output(self, stamp: str, _native_id: str) -> bytes:
        if self.is_away:
            raise BackendFault("It does not answer.", transient=True)
        return f"output of {stamp}".encode()


@pytest.fixture
def backend():
    return ScriptedBackend()


Template = tuple[Callable[[Path], Database], dict[str, str]]


@pytest.fixture(scope="session")
def templates(tmp_path_factory, maker):
    """The beginnings of houses, each made once: a folder with a database, and the tokens of its users."""

    def make(*users: tuple[str, str]) -> Template:
        home = tmp_path_factory.mktemp("template")
        house = House(home, maker.empty(home))
        house.service()
        for name, group in users:
            house.user(name, group, admin=name == "admin")
        house.close()
        return partial(maker.like, house._writer.database), house.tokens

    return {"empty": make(), "users": make(("admin", "physics"), ("ann", "physics"), ("bob", "bio"))}


def house_of(template: Template, home: Path, **more: Any) -> House:
    """A house in that folder which begins as the template."""
    house = House(home, template[0](home), **more)
    house.tokens |= template[1]
    return house


@pytest.fixture
def house(maker, tmp_path, templates):
    """A server with an administrator, and ann (physics) and bob (bio) who want jobs run."""
    house = house_of(templates["users"], tmp_path)
    yield house
    house.close()
    maker.drop(house._writer.database)


@pytest.fixture
def make_house(maker, tmp_path, templates):
    """Houses of another kind: `make_house(lease=2.0)`."""
    made: list[House] = []

    def make(**more: Any) -> House:
        home = tmp_path / f"house{len(made)}"
        home.mkdir()
        made.append(house_of(templates["empty"], home, **more))
        return made[-1]

    yield make
    for house in made:
        house.close()
        maker.drop(house._writer.database)
