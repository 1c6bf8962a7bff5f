"""Policies by name: ours, and what installed packages offer as entry points.

An entry point of the group `tenure.policies.admission`, `.ordering`, `.placement`, `.preemption` or
`.pricing` names a callable without arguments that returns the policy, its class for example. Ours
win over one of the same name. Looked up by name only, so what is installed costs nothing unless
somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar, cast

from tenure_core.errors import DomainError, NotFound, WrongState
from tenure_core.policies.admission import AcceptAll, AdmissionPolicy, NoAdvance
from tenure_core.policies.ordering_words import Word
from tenure_core.policies.placement import Greedy, HostRanking, HostSelection, RoundRobin
from tenure_core.policies.preemption import (
    BookedPreemptBestEffort,
    NoPreemption,
    PreemptionPolicy,
)
from tenure_core.policies.pricing import Free, PricingPolicy

GROUP: Final = "tenure.policies"
Policy = TypeVar("Policy")


class Choices(Generic[Policy]):
    """The policies of one kind; an offered one is made once and kept."""

    def __init__(self, kind: str, port: type, ours: Mapping[str, Policy], default: str) -> None:
        """`port` is what an offered policy must be able to do; `default` stands for a lost one."""
        self.ours: Final = ours
        self._kind = kind
        self._port = port
        self._default = default
        self._made: dict[str, Policy] = dict(ours)
        self._offered: dict[str, Any] | None = None

    def names(self) -> list[str]:
        """Return every name: ours, then those that packages offer."""
        return [*self.ours, *sorted(self._offers().keys() - self.ours.keys())]

    def find(self, name: str) -> Policy | None:
        """Return a policy by its name, None when nobody offers it.

        Raises WrongState POLICY_FAILED when it cannot be made.
        """
        if name not in self._made:
            offer = self._offers().get(name)
            if offer is None:
                return None
            self._made[name] = self._guarded(name, offer.load)
        return self._made[name]

    def __getitem__(self, name: str) -> Policy:
        """Return a policy by its name.

        Raises NotFound POLICY_NOT_INSTALLED when nobody offers it, and as `find` does.
        """
        found = self.find(name)
        if found is None:
            text = f"No package installed here offers a policy {name!r} of {self._kind}."
            raise NotFound("POLICY_NOT_INSTALLED", text, policy=name, kind=self._kind)
        return found

    def or_default(self, name: str) -> Policy:
        """Return a policy by its name, the default, with a warning, when it cannot be had."""
        try:
            return self[name]
        except DomainError as error:
            warn_of_missing(self._kind, name, self._default, error)
            return self._made[self._default]

    def _offers(self) -> Mapping[str, Any]:
        """Return the entry points of what was installed when they were first looked at, by name.

        A leader without the package of its pool's policy asks in each cycle, so once must do.
        """
        if self._offered is None:
            from importlib.metadata import entry_points  # slow, and most policies are ours

            found = entry_points(group=f"{GROUP}.{self._kind}")
            self._offered = {each.name: each for each in found}
        return self._offered

    def _guarded(self, name: str, load: Callable[[], Any]) -> Policy:
        called = f"{self._kind}={name}"
        made = _told(called, lambda: load()())
        if not isinstance(made, self._port):
            text = f"Policy {called} is no {self._port.__name__}."
            raise WrongState("POLICY_FAILED", text, policy=called)
        # A class of its own: words of an ordering are told apart by their class.
        return cast(Policy, type(type(made).__name__, (_Guarded,), {})(called, made))


_warned: Final[set[tuple[str, str]]] = set()


def warn_of_missing(kind: str, name: str, instead: str, error: Exception) -> None:
    """Say once a process that a pool is planned by another policy than was set."""
    if (kind, name) not in _warned:
        from tenure_runtime.telemetry.logging import get_logger  # a simulation needs none

        _warned.add((kind, name))
        get_logger().warning(
            "policy.missing", kind=kind, policy=name, instead=instead, exc_info=error
        )


class _Guarded:
    """A policy from elsewhere: whatever it raises becomes an error that says whose it is."""

    def __init__(self, called: str, made: object) -> None:
        self._called = called
        self._made = made

    def __getattr__(self, name: str) -> Any:
        value = _told(self._called, lambda: getattr(self._made, name))
        if not callable(value):
            return value

        def call(*args: object, **more: object) -> object:
            made = _told(self._called, lambda: value(*args, **more))
            return _Guarded(self._called, made) if name == "opened" else made

        setattr(self, name, call)
        return call


def _told(called: str, effect: Callable[[], Any]) -> Any:
    try:
        return effect()
    except DomainError:
        raise
    except Exception as error:
        text = f"Policy {called}, which is not ours, failed: {error!r}"
        raise WrongState("POLICY_FAILED", text, policy=called) from error


ADMISSIONS: Final[Choices[AdmissionPolicy]] = Choices(
    "admission", AdmissionPolicy, {"all": AcceptAll(), "no-advance": NoAdvance()}, "all"
)
WORDS: Final[Choices[Word]] = Choices("ordering", Word, {}, "")
"""Only what packages offer: words of our own may have arguments (`policies.ordering_words`)."""
PRICINGS: Final[Choices[PricingPolicy]] = Choices(
    "pricing", PricingPolicy, {"free": Free()}, "free"
)
"""Those of ours that have rates are read by `policies.pricing.parse_pricing`."""
PLACEMENTS: Final[Choices[HostSelection | HostRanking]] = Choices(
    "placement",
    HostRanking,
    {
        "pack": HostSelection.BEST_FIT,
        "spread": HostSelection.WORST_FIT,
        "first": HostSelection.FIRST_FIT,
        "round-robin": RoundRobin(),
        "greedy": Greedy(),
    },
    "pack",
)
PREEMPTIONS: Final[Choices[PreemptionPolicy]] = Choices(
    "preemption",
    PreemptionPolicy,
    {
        "off": NoPreemption(),
        "suspend": BookedPreemptBestEffort(),
        "requeue": BookedPreemptBestEffort(suspends=False),
    },
    "off",
)
