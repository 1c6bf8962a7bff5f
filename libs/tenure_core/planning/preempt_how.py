"""What becomes of a preempted lease: said by policies, told in plans."""

from __future__ import annotations

from enum import Enum


class PreemptHow(Enum):
    """What becomes of a lease that is preempted."""

    SUSPEND = "SUSPEND"
    """Stopped in place with its progress kept; it resumes on the same nodes."""
    REQUEUE = "REQUEUE"
    """Stopped, its progress in this attempt lost; it waits again for a new attempt."""
    CANCEL = "CANCEL"
    """Ended for good."""
