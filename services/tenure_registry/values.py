"""What the registry's rooms hand one another; the things themselves are in `tenure_core.agents`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tenure_core.agents.agent import Agent, Claim
from tenure_core.agents.states import AgentState
from tenure_core.agents.work import Allocation, Command, Report, Slot
from tenure_core.timebase import Millis


@dataclass(frozen=True, slots=True)
class Opening:
    """An agent that says hello: its claim, and what it says is on its node."""

    claim: Claim
    session: str
    replica: str
    present: frozenset[Slot]

    def agent_after(self, before: Agent | None, now_ms: Millis) -> Agent:
        """Return the agent with its new session; what operators said of it before stays."""
        claim = self.claim
        steady = before is not None and before.state is AgentState.ALIVE
        return Agent(
            agent=claim.agent,
            pool=claim.pool,
            incarnation=claim.incarnation,
            state=AgentState.ALIVE,
            cordoned=before.cordoned if before else False,
            draining=before.draining if before else False,
            capacity=claim.capacity,
            attributes=claim.attributes,
            suspended_keeps=claim.suspended_keeps,
            version=claim.version,
            session=self.session,
            replica=self.replica,
            contact_ms=now_ms,
            changed_ms=before.changed_ms if before and steady else now_ms,
            sealing_key=claim.sealing_key,
        )


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A command on its way, and for how long from now it may still be begun.

    `session` is the one that its agent had when this was read: a later session has read for itself
    what it is to be told, and perhaps that this is over.
    """

    command: Command
    remaining_ms: Millis
    session: str


@dataclass(frozen=True, slots=True)
class Opened:
    """What an agent is told after its hello. Commands are in the order of their dispatch.

    `replica_before` had the session that this one took the place of; "" when there was none.
    """

    agent: Agent
    wanted: tuple[Allocation, ...]
    commands: tuple[Outgoing, ...]
    epochs: Mapping[str, int]
    replica_before: str = ""


@dataclass(frozen=True, slots=True)
class StateChange:
    """A session's agent is alive again, or suspected."""

    agent: str
    session: str
    state: AgentState
    contact_ms: Millis


@dataclass(frozen=True, slots=True)
class Dispatch:
    """A leader's commands for agents of one pool."""

    pool: str
    epoch: int
    commands: tuple[Command, ...]

    @property
    def scope(self) -> str:
        """Return the scope that the epoch belongs to."""
        return f"pool/{self.pool}"


@dataclass(frozen=True, slots=True)
class Dispatched:
    """A reason for each command, "" where it is stored, and what is to be delivered.

    `replicas` says who has the session of each agent that something is to be delivered to.
    """

    reasons: tuple[str, ...]
    deliveries: tuple[Outgoing, ...]
    replicas: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ReportGroup:
    """Reports of one agent, as one message brought them."""

    agent: str
    reports: tuple[Report, ...]


@dataclass(frozen=True, slots=True)
class AgentChange:
    """An agent after a change; None for a bookmark."""

    agent: Agent | None
    token: str


@dataclass(frozen=True, slots=True)
class ReportChange:
    """A report that was stored, and when by the registry's clock; None for a bookmark."""

    report: Report | None
    token: str
    recorded_ms: Millis = 0


@dataclass(frozen=True, slots=True)
class LogRequest:
    """What is asked of an agent about a log: where to begin, whether to follow, or to end it."""

    request_id: str
    slot: Slot
    offset: int = 0
    follow: bool = False
    cancel: bool = False


@dataclass(frozen=True, slots=True)
class LogPart:
    """A part of a log. `reason` says why there is none."""

    request_id: str
    offset: int
    data: bytes
    end: bool
    reason: str


@dataclass(frozen=True, slots=True)
class StoredApplication:
    """The last report of the application on an agent, as sent, and the order it is given."""

    agent: str
    incarnation: str
    sequence: int
    age_ms: Millis
    report: bytes
    order_id: str


@dataclass(frozen=True, slots=True)
class ApplicationOrder:
    """What the application on one incarnation of an agent shall be; `body` is sent as it is."""

    agent: str
    incarnation: str
    order_id: str
    body: bytes
