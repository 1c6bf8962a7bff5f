"""Puts notices together: their calls on the server, the loops that deliver them."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from tenure.notices.v1.notices_pb2_grpc import add_NoticeServiceServicer_to_server
from tenure_admission.notices.mail import Mail, MailServer
from tenure_admission.notices.sending import Sender
from tenure_admission.notices.servicer import SERVICE, NoticeServicer
from tenure_admission.notices.values import Channel
from tenure_admission.notices.webhook import Webhook
from tenure_admission.settings import AdmissionSettings
from tenure_admission.store.notices import PostgresNotices
from tenure_core.timebase import Clock
from tenure_runtime.postgres.pool import Pool
from tenure_runtime.process import run_loop
from tenure_runtime.rpc.server import RpcServer


def keep_notices(
    server: RpcServer, pool: Pool, settings: AdmissionSettings, clock: Clock
) -> list[Coroutine[Any, Any, None]]:
    """Serve the calls about notices and return the loops that deliver them."""
    notices = PostgresNotices(pool)
    server.add(add_NoticeServiceServicer_to_server, NoticeServicer(notices), SERVICE)
    sender = Sender(notices, channels(settings, clock))
    return [
        run_loop("notices.send", sender.run_once, period_s=1),
        run_loop("notices.ending", sender.write_ending, period_s=5),
        run_loop("notices.forget", sender.forget, period_s=600),
    ]


def channels(settings: AdmissionSettings, clock: Clock) -> dict[str, Channel]:
    """Return the ways to owners that this process has."""
    known: dict[str, Channel] = {"webhook": Webhook(clock, private=settings.notices_private)}
    if settings.smtp_address:
        name, _, port = settings.smtp_address.rpartition(":")
        server = MailServer(
            name.strip("[]"),
            int(port),
            settings.smtp_from,
            settings.smtp_encryption,
            settings.smtp_user or "",
            settings.smtp_password or "",
        )
        known["email"] = Mail(server)
    return known
