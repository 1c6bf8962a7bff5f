"""What the registry's stream brings for the executor."""

from __future__ import annotations

from dataclasses import dataclass

from tenure_agent.work import Command, Observed


@dataclass(frozen=True, slots=True)
class Received:
    """A command, the session of the stream it came on, and when it came (boot clock).

    `problem` says why it cannot be understood.
    """

    command: Command
    stream_session: str
    at_ms: int
    problem: str = ""

    @property
    def before_ms(self) -> int:
        """Return until when it may be begun."""
        return self.at_ms + self.command.valid_ms


@dataclass(frozen=True, slots=True)
class Wanted:
    """All that shall be here, as the stream of a session said."""

    allocations: tuple[Observed, ...]
    stream_session: str
