"""Notices: written with what they tell of, delivered to real servers, once for each fact."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.contract.admission.harness import Admission, Caller, State, charged, record, transition
from tests.support.databases import open_test_pool
from tests.support.receivers import http_receiver, smtp_receiver

from tenure.admission.v1 import admission_pb2 as calls
from tenure_admission import app
from tenure_admission.notices.mail import Mail, MailServer
from tenure_admission.notices.sending import Sender
from tenure_admission.notices.values import ATTEMPTS_MAX, Channel, NoticeSettings
from tenure_admission.notices.webhook import Webhook
from tenure_admission.store.notices import PostgresNotices
from tenure_runtime.clocks import SystemClock
from tenure_runtime.postgres.pool import Pool

pytestmark = pytest.mark.postgres
SECRET = "s" * 32


class Told:
    """The notices of one admission, for the owner `user`."""

    def __init__(self, pool: Pool, admission: Admission) -> None:
        self.pool = pool
        self.admission = admission
        self.kept = PostgresNotices(pool)

    async def by_webhook(self, url: str, **settings: Any) -> Sender:
        await self.kept.set("user", NoticeSettings(url, SECRET, **settings))
        return self.sender({"webhook": Webhook(SystemClock(), private=True)})

    def sender(self, channels: dict[str, Channel]) -> Sender:
        return Sender(self.kept, channels)

    async def hurry(self) -> None:
        """Let everything that waits be due."""
        await self.pool.execute("UPDATE notices SET due_ms = 0")

    async def states(self) -> list[tuple[str, str, int]]:
        """Return (kind, state, attempts), oldest first."""
        listed = await self.kept.listed("user")
        return [(each.kind, each.state, each.attempts) for each in listed[::-1]]


@pytest.fixture
async def told(stored: Admission, database_dsn: str) -> AsyncIterator[Told]:
    pool = await open_test_pool(database_dsn, app.SCHEMA)
    yield Told(pool, stored)
    await pool.close()


async def booked(leader: Caller, lease: Any, start_s: int = 2_000_000_000) -> None:
    step = charged(transition(lease, State.STATE_SCHEDULED, attempt=1), 60, start_s=start_s)
    [verdict] = await record(leader, step)
    assert not verdict.reason, verdict


async def move_on(leader: Caller, lease: Any, state: Any, version: int, **fields: Any) -> None:
    step = transition(lease, state, version=version, attempt=1, **fields)
    [verdict] = await record(leader, step)
    assert not verdict.reason, verdict


async def test_an_owner_is_told_what_becomes_of_a_lease(told: Told) -> None:
    user = await told.admission.caller("user")
    leader = await told.admission.caller("service")
    async with http_receiver() as http:
        sender = await told.by_webhook(http.url)
        lease = await user.create()
        await booked(leader, lease)
        await booked(leader, lease)
        moved = transition(lease, State.STATE_SCHEDULED, version=2, attempt=1)
        await record(leader, charged(moved, 60, start_s=2_000_000_100))
        await move_on(leader, lease, State.STATE_STARTING, 3)
        await move_on(leader, lease, State.STATE_ACTIVE, 4)
        await move_on(leader, lease, State.STATE_SUSPENDING, 5, reason="PREEMPTED")
        await move_on(leader, lease, State.STATE_SUSPENDED, 6, reason="PREEMPTED")
        await move_on(leader, lease, State.STATE_FAILED, 7, reason="WORK_FAILED", message="So.")
        assert await sender.run_once() == 4
        assert await sender.run_once() == 0
    bare = lease.name.removeprefix("leases/")
    by_id = {posted.told["id"]: posted for posted in http.posted}
    assert sorted(by_id) == [
        f"{bare}.2.booked", f"{bare}.3.moved", f"{bare}.6.preempted", f"{bare}.8.failed",
    ]  # fmt: skip
    assert len(http.posted) == 4
    assert all(posted.is_signed_with(SECRET) for posted in http.posted)
    assert not http.posted[0].is_signed_with("x" * 32)
    moved_notice = by_id[f"{bare}.3.moved"]
    assert moved_notice.path == "/hook?a=b"
    assert moved_notice.headers["tenure-notice-id"] == f"{bare}.3.moved"
    assert moved_notice.told["start_before_ms"] == 2_000_000_000_000
    assert moved_notice.told["start_ms"] == 2_000_000_100_000
    failed = by_id[f"{bare}.8.failed"].told
    assert (failed["lease"], failed["reason"], failed["message"], failed["owner"]) == (
        lease.name, "WORK_FAILED", "So.", "user",
    )  # fmt: skip


async def test_only_what_was_chosen_is_told_and_nothing_to_who_did_not_ask(told: Told) -> None:
    user = await told.admission.caller("user")
    leader = await told.admission.caller("service")
    before = await user.create()
    await booked(leader, before)
    assert await told.states() == []
    await told.kept.set("user", NoticeSettings("http://127.0.0.1/", SECRET, kinds=("DISPLACED",)))
    lease = await user.create()
    await booked(leader, lease)
    await move_on(leader, lease, State.STATE_QUEUED, 2, reason="BOOKING_LOST")
    assert await told.states() == [("DISPLACED", "PENDING", 0)]


async def test_that_a_lease_ends_soon_is_told_once_for_each_end(told: Told) -> None:
    user = await told.admission.caller("user")
    leader = await told.admission.caller("service")
    async with http_receiver() as http:
        sender = await told.by_webhook(http.url, kinds=("ENDING",), ending_lead_ms=60_000)
        lease = await user.create()
        now_s = SystemClock().now_ms() // 1_000
        await booked(leader, lease, start_s=now_s - 50)
        await move_on(leader, lease, State.STATE_STARTING, 2)
        assert await sender.write_ending() == 0, "it does not run yet"
        await move_on(leader, lease, State.STATE_ACTIVE, 3)
        assert [await sender.write_ending(), await sender.write_ending()] == [1, 0]
        longer = charged(transition(lease, State.STATE_ACTIVE, version=4, attempt=1), 75,
                         start_s=now_s - 50)  # fmt: skip
        await record(leader, longer)
        assert await sender.write_ending() == 1
        assert await sender.run_once() == 1, "the end that is none any more is not told"
    [posted] = http.posted
    assert posted.told["end_ms"] == (now_s + 25) * 1_000
    assert sorted(await told.states()) == [("ENDING", "DELIVERED", 1), ("ENDING", "OVERTAKEN", 0)]


async def test_a_delivery_that_fails_is_tried_again_with_the_same_id_and_body(told: Told) -> None:
    user = await told.admission.caller("user")
    leader = await told.admission.caller("service")
    async with http_receiver(b"500 No", b"302 Found\r\nLocation: /", b"200 OK") as http:
        sender = await told.by_webhook(http.url)
        await booked(leader, await user.create())
        for _ in range(4):
            await sender.run_once()
            assert await sender.run_once() == 0, "a pause lies between attempts"
            await told.hurry()
    assert len(http.posted) == 3
    assert len({posted.body for posted in http.posted}) == 1
    assert await told.states() == [("BOOKED", "DELIVERED", 3)]


async def test_what_cannot_be_delivered_is_given_up_and_shown(told: Told) -> None:
    user = await told.admission.caller("user")
    leader = await told.admission.caller("service")
    async with http_receiver(b"503 Later") as http:
        sender = await told.by_webhook(http.url)
        await booked(leader, await user.create())
        for _ in range(ATTEMPTS_MAX + 2):
            await sender.run_once()
            await told.hurry()
    assert len(http.posted) == ATTEMPTS_MAX
    [dead] = await told.kept.listed("user")
    assert (dead.state, dead.error) == ("DEAD", "answered with status 503")


async def test_a_private_address_is_never_called_unless_the_operator_allows_it(told: Told) -> None:
    user = await told.admission.caller("user")
    leader = await told.admission.caller("service")
    async with http_receiver() as http:
        await told.by_webhook(http.url.replace("127.0.0.1", "localhost"))
        await booked(leader, await user.create())
        await told.sender({"webhook": Webhook(SystemClock(), private=False)}).run_once()
    assert http.posted == []
    [dead] = await told.kept.listed("user")
    assert dead.state == "DEAD"
    assert dead.error == "localhost leads to an address that is not public"


async def test_what_a_sender_took_and_never_noted_is_sent_again(told: Told) -> None:
    user = await told.admission.caller("user")
    leader = await told.admission.caller("service")
    async with http_receiver() as http:
        sender = await told.by_webhook(http.url)
        await booked(leader, await user.create())
        [taken] = await told.kept.take(10)
        assert await sender.run_once() == 0, "another has it"
        await told.hurry()
        await sender.run_once()
    assert [posted.told["id"] for posted in http.posted] == [taken.id]


async def test_senders_share_the_work(told: Told) -> None:
    user = await told.admission.caller("user")
    leader = await told.admission.caller("service")
    async with http_receiver() as http:
        one = await told.by_webhook(http.url)
        for _ in range(30):
            await booked(leader, await user.create())
        other = told.sender({"webhook": Webhook(SystemClock(), private=True)})
        await asyncio.gather(one.run_once(), other.run_once(), one.run_once())
    ids = [posted.told["id"] for posted in http.posted]
    assert len(ids) == len(set(ids)) == 30


async def test_an_owner_is_told_by_mail(told: Told) -> None:
    user = await told.admission.caller("user")
    leader = await told.admission.caller("service")
    async with smtp_receiver() as smtp:
        host, _, port = smtp.address.rpartition(":")
        mail = Mail(MailServer(host, int(port), "tenure@example.org", "none"))
        sender = told.sender({"email": mail})
        await told.kept.set("user", NoticeSettings(email="ann@example.org"))
        lease = await user.create()
        await booked(leader, lease)
        await sender.run_once()
        await told.kept.set("user", NoticeSettings(email="refused@example.org"))
        await user(calls.CancelLeaseRequest(name=lease.name))
        await move_on(leader, lease, State.STATE_CANCELLED, 3)
        await sender.run_once()
    [(recipient, message)] = smtp.mails
    bare = lease.name.removeprefix("leases/")
    assert recipient == "ann@example.org"
    assert message["Subject"] == f"Tenure: {lease.name} is booked"
    assert message["Message-ID"] == f"<{bare}.2.booked@example.org>"
    assert "Starts: 2033-05-18 03:33:20 UTC" in message.get_content()  # type: ignore[attr-defined]
    assert await told.states() == [("BOOKED", "DELIVERED", 1), ("ENDED", "DEAD", 1)]
