"""Mails notices by SMTP: a few lines of text, the notice's id as the message's."""

from __future__ import annotations

import asyncio
import smtplib
import ssl
from dataclasses import dataclass, field
from email.message import EmailMessage
from typing import Final, Literal

from tenure_admission.notices.values import Delivery, DeliveryFailed
from tenure_admission.phrases import words_of
from tenure_core.timebase import in_words

TIMEOUT_S: Final = 15.0
_SUBJECTS: Final = {
    "BOOKED": "is booked",
    "MOVED": "starts at another time",
    "DISPLACED": "lost its place and waits again",
    "PREEMPTED": "gives way to another",
    "ENDING": "ends soon",
    "FAILED": "failed",
    "ENDED": "has ended",
}


@dataclass(frozen=True, slots=True)
class MailServer:
    """Where mails are handed in, and by whom."""

    name: str
    port: int
    sender: str
    encryption: Literal["none", "starttls", "tls"] = "starttls"
    user: str = ""
    password: str = field(default="", repr=False)


class Mail:
    """The way to owners by e-mail."""

    def __init__(self, server: MailServer) -> None:
        self._server = server

    async def send(self, delivery: Delivery) -> None:
        """Hand a notice in at the mail server."""
        message = message_of(delivery, self._server.sender)
        try:
            await asyncio.to_thread(self._hand_in, message)
        except smtplib.SMTPRecipientsRefused:
            raise DeliveryFailed("the mail server refused the address", for_good=True) from None
        except (OSError, smtplib.SMTPException) as error:
            raise DeliveryFailed(f"mail server: {type(error).__name__}") from None

    def _hand_in(self, message: EmailMessage) -> None:
        server = self._server
        where = (server.name, server.port)
        context = ssl.create_default_context()
        if server.encryption == "tls":
            opened: smtplib.SMTP = smtplib.SMTP_SSL(*where, timeout=TIMEOUT_S, context=context)
        else:
            opened = smtplib.SMTP(*where, timeout=TIMEOUT_S)
        with opened:
            if server.encryption == "starttls":
                opened.starttls(context=context)
            if server.user:
                opened.login(server.user, server.password)
            opened.send_message(message)


def message_of(delivery: Delivery, sender: str) -> EmailMessage:
    """Return the mail that tells of a notice; the same one for every attempt."""
    facts = delivery.facts
    message = EmailMessage()
    message["From"] = sender
    message["To"] = delivery.target
    message["Message-ID"] = f"<{delivery.id}@{sender.rpartition('@')[2]}>"
    if delivery.kind == "TEST":
        message["Subject"] = "Tenure: a test notice"
        message.set_content("This is how Tenure tells you of your leases.\n")
        return message
    message["Subject"] = f"Tenure: {facts['lease']} {_SUBJECTS[delivery.kind]}"
    why = str(facts["message"] or words_of(str(facts["reason"])))
    lines = [f"{facts['lease']} in pool {facts['pool']}: {why}"]
    for name, label in (("start_ms", "Starts"), ("end_ms", "Ends")):
        at = facts.get(name)
        if isinstance(at, int):
            lines.append(f"{label}: {in_words(at)}")
    message.set_content("\n".join([*lines, f"Notice {delivery.id}"]) + "\n")
    return message
