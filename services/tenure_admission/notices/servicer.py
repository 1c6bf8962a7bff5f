"""Serves `tenure.notices.v1`: how owners are told, and what became of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from tenure.notices.v1 import notices_pb2 as pb
from tenure.notices.v1.notices_pb2_grpc import NoticeServiceServicer
from tenure_admission.notices.facts import Kind, Notice
from tenure_admission.notices.values import ENDING_LEAD_MS_DEFAULT, KeptNotice, NoticeSettings
from tenure_admission.notices.webhook import UrlRefused, parse_url
from tenure_admission.store.notices import PostgresNotices
from tenure_core.errors import Forbidden, Invalid, Violation, WrongState
from tenure_core.timebase import DAY_MS, MINUTE_MS
from tenure_runtime.ids import RandomIds
from tenure_runtime.rpc.caller import caller
from tenure_runtime.rpc.identity import Permissions, Role
from tenure_runtime.rpc.wire import span_to_millis, to_duration, to_timestamp

SERVICE: Final = "tenure.notices.v1.NoticeService"
_PEOPLE: Final = frozenset({Role.USER, Role.OPERATOR})
PERMISSIONS: Final = Permissions.of(
    SERVICE,
    {
        "GetSettings": _PEOPLE,
        "SetSettings": _PEOPLE,
        "SendTest": _PEOPLE,
        "ListNotices": _PEOPLE,
    },
)
_URL_MAX: Final = 2_048
_EMAIL: Final = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,189}")
_SECRET: Final = re.compile(r"[\x21-\x7e]{16,128}")
_NAME_MAX: Final = 63
# grpc's context is typed by direction only; nothing here uses it.
Context = Any


class NoticeServicer(NoticeServiceServicer):
    """One method a call."""

    def __init__(self, notices: PostgresNotices) -> None:
        self._notices = notices

    async def GetSettings(
        self, request: pb.GetSettingsRequest, context: Context
    ) -> pb.GetSettingsResponse:
        """Return how an owner is told."""
        found = await self._notices.settings(_owner(request.owner))
        return pb.GetSettingsResponse(settings=_settings(found or NoticeSettings()))

    async def SetSettings(
        self, request: pb.SetSettingsRequest, context: Context
    ) -> pb.SetSettingsResponse:
        """Replace how an owner is told."""
        owner = _owner(request.owner)
        before = await self._notices.settings(owner)
        signs = bool(before and before.webhook_secret)
        violations = list(_violations(request, signs=signs))
        if violations:
            raise Invalid(violations)
        given = request.settings
        lead = given.ending_lead
        wanted = NoticeSettings(
            given.webhook_url,
            request.webhook_secret,
            given.email,
            tuple(sorted({_kind_name(kind) for kind in given.kinds})),
            span_to_millis(lead) if given.HasField("ending_lead") else ENDING_LEAD_MS_DEFAULT,
        )
        return pb.SetSettingsResponse(settings=_settings(await self._notices.set(owner, wanted)))

    async def SendTest(self, request: pb.SendTestRequest, context: Context) -> pb.SendTestResponse:
        """Write a test notice."""
        owner = _owner(request.owner)
        found = await self._notices.settings(owner)
        if found is None or not (found.webhook_url or found.email):
            raise WrongState("NOTICES_NOT_SET", f"{owner} has named no way to be told.")
        notice = Notice(f"test.{RandomIds().short(16)}", owner, Kind.TEST, {})
        await self._notices.add(notice)
        return pb.SendTestResponse(notice_id=notice.id)

    async def ListNotices(
        self, request: pb.ListNoticesRequest, context: Context
    ) -> pb.ListNoticesResponse:
        """Return an owner's newest notices."""
        found = await self._notices.listed(_owner(request.owner))
        return pb.ListNoticesResponse(notices=map(_notice, found))


def _owner(asked: str) -> str:
    """Return whose notices are meant. Raises Forbidden SUBJECT_FORBIDDEN, Invalid."""
    viewer = caller()
    if len(asked) > _NAME_MAX:
        raise Invalid([Violation("owner", "TOO_LONG", f"at most {_NAME_MAX} characters")])
    if asked not in ("", viewer.name) and not viewer.sees_all:
        raise Forbidden("SUBJECT_FORBIDDEN", "Users set and see their own notices only.")
    return asked or viewer.name


def _violations(request: pb.SetSettingsRequest, *, signs: bool) -> Iterator[Violation]:
    given = request.settings
    if len(given.webhook_url) > _URL_MAX:
        yield Violation("settings.webhook_url", "TOO_LONG", f"at most {_URL_MAX} characters")
    elif given.webhook_url:
        try:
            parse_url(given.webhook_url)
        except UrlRefused as error:
            yield Violation("settings.webhook_url", "URL_INVALID", str(error))
        if not signs and not request.webhook_secret:
            text = "is needed with the first webhook: it signs what is posted"
            yield Violation("webhook_secret", "REQUIRED", text)
    if request.webhook_secret and not _SECRET.fullmatch(request.webhook_secret):
        text = "is 16 to 128 printable characters without blanks"
        yield Violation("webhook_secret", "SECRET_INVALID", text)
    if given.email and not _EMAIL.fullmatch(given.email):
        yield Violation("settings.email", "EMAIL_INVALID", "is no e-mail address")
    for index, kind in enumerate(given.kinds):
        if not 0 < kind < pb.KIND_TEST:
            yield Violation(f"settings.kinds[{index}]", "OUT_OF_RANGE", "is no kind to choose")
    if given.HasField("ending_lead"):
        lead = span_to_millis(given.ending_lead)
        if not MINUTE_MS <= lead <= DAY_MS:
            yield Violation("settings.ending_lead", "OUT_OF_RANGE", "1 minute to 1 day")


def _kind_name(kind: pb.Kind.ValueType) -> str:
    return pb.Kind.Name(kind).removeprefix("KIND_")


def _kind(name: str) -> pb.Kind.ValueType:
    return pb.Kind.Value(f"KIND_{name}")


def _settings(settings: NoticeSettings) -> pb.Settings:
    return pb.Settings(
        webhook_url=settings.webhook_url,
        webhook_secret_set=bool(settings.webhook_secret),
        email=settings.email,
        kinds=map(_kind, settings.kinds),
        ending_lead=to_duration(settings.ending_lead_ms),
    )


def _notice(notice: KeptNotice) -> pb.Notice:
    return pb.Notice(
        id=notice.id,
        kind=_kind(notice.kind),
        lease=notice.lease,
        channel=notice.channel,
        state=pb.Notice.State.Value(f"STATE_{notice.state}"),
        create_time=to_timestamp(notice.created),
        attempts=notice.attempts,
        error=notice.error,
    )
