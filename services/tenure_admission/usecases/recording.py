"""Record what leaders decide, and fence leaders that were followed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenure_admission.ports import LeaderRecord, TransitionOutcome, TransitionRecorder
from tenure_admission.records import Forecast
from tenure_admission.transitions import Transition
from tenure_core.timebase import Clock


class Recording:
    """Records for leaders; the store compares epochs in the transaction that writes."""

    def __init__(self, recorder: TransitionRecorder, clock: Clock) -> None:
        self._recorder = recorder
        self._clock = clock

    async def record(
        self,
        scope: str,
        epoch: int,
        transitions: Sequence[Transition],
        forecasts: Mapping[str, Forecast],
    ) -> list[TransitionOutcome]:
        """Return an outcome for each transition. Raises Stale STALE_EPOCH."""
        asked = LeaderRecord(
            scope=scope,
            pool=scope.removeprefix("pool/"),
            epoch=epoch,
            now=self._clock.now_ms(),
            transitions=transitions,
            forecasts=forecasts,
        )
        return await self._recorder.record(asked)

    async def fence(self, scope: str, epoch: int) -> int:
        """Return the scope's epoch once it is raised. Raises Stale STALE_EPOCH."""
        return await self._recorder.fence(scope, epoch)
