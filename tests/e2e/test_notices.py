"""Notices on a real suite: set and tried from the shell, received by real servers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.support.cli import Cli
from tests.support.receivers import http_receiver, smtp_receiver
from tests.support.suite import running_suite, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


async def said(cli: Cli, *arguments: str, code: int = 0) -> Any:
    done = await asyncio.to_thread(cli, *arguments, code=code)
    return json.loads(done.stdout)


async def test_an_owner_is_told_of_a_lease_by_webhook_and_mail() -> None:
    async with http_receiver(b"500 Not yet", b"204 No Content") as http, smtp_receiver() as smtp:
        admission = {
            "TENURE_NOTICES_PRIVATE": "true",
            "TENURE_SMTP_ADDRESS": smtp.address,
            "TENURE_SMTP_ENCRYPTION": "none",
        }
        async with running_suite(agents=1, services={"admission": admission}) as suite:
            cli = Cli(suite.folder)
            await asyncio.to_thread(cli, "notices", "test", code=4)
            settings = await said(
                cli, "notices", "set", "--webhook", http.url, "--email", "ann@example.org",
                "--before-end", "2m", "-o", "json",
            )  # fmt: skip
            test_id = (await asyncio.to_thread(cli, "notices", "test")).stdout.strip()
            await asyncio.to_thread(cli, "run", "--time", "1m", "--", "true")

            async def all_came() -> bool:
                kinds = {posted.told["kind"] for posted in http.posted}
                told = kinds == {"TEST", "BOOKED", "ENDED"} and len(http.posted) == 4
                return told and len(smtp.mails) == 3

            await until(all_came, 30, "webhooks and mails come, the first after a pause")
            shown = await said(cli, "notices", "show", "-o", "json")

    secret = settings["webhook_secret"]
    ids = [posted.told["id"] for posted in http.posted]
    assert settings["webhook_url"] == http.url
    assert settings["ending_lead"] == "120s"
    assert all(posted.is_signed_with(secret) for posted in http.posted)
    assert len(ids) == 4 and len(set(ids)) == 3 and ids[0] in ids[1:], "one came twice, by its id"
    assert test_id in ids
    assert {recipient for recipient, _ in smtp.mails} == {"ann@example.org"}
    assert len({message["Message-ID"] for _, message in smtp.mails}) == 3
    assert {each["state"] for each in shown["notices"]} == {"STATE_DELIVERED"}
    assert len(shown["notices"]) == 6
    assert secret not in json.dumps(shown)
