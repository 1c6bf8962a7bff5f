"""What is wrong with a suite, and what to do about it: judged from facts that were gathered before.

Each check looks at one thing and says at least one finding, so that what was looked at shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

from tenure.registry.v1 import agent_pb2 as apb
from tenure_cli.certificates import CertificateFacts
from tenure_runtime.rpc.wire import bare

CLOCKS_APART_MS: Final = 2_000
NAMED_MAX: Final = 10


class Level(Enum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: how it is, and what to do where it is not well."""

    check: str
    level: Level
    message: str
    advice: str = ""


@dataclass(slots=True)
class Facts:
    """What was gathered. None: could not be asked.

    `services` are as `tenure status` has them; `pools` maps a pool to who leads it ("" nobody);
    `apart_ms` is how far this machine's clock is ahead of the services'.
    """

    version: str
    services: list[dict[str, Any]] = field(default_factory=list)
    agents: list[apb.Agent] | None = None
    pools: Mapping[str, str | None] | None = None
    apart_ms: int | None = None
    over_commits: int | None = None
    drifts: int | None = None
    folder: Path | None = None
    modes: Mapping[str, int] = field(default_factory=dict)
    certificates: list[CertificateFacts] = field(default_factory=list)


def diagnose(facts: Facts) -> list[Finding]:
    """Return what was found, in the order in which it is worth mending."""
    return [finding for check in _CHECKS for finding in check(facts)]


def _services(facts: Facts) -> Iterator[Finding]:
    away = [each for each in facts.services if each["state"] != "serving"]
    for each in away:
        where = f"{each['service']} at {each['address']}"
        text = f"{where} does not answer ({each.get('reason', 'unknown')})."
        advice = "`tenure up` starts what does not run; in a cluster, see its pods and their logs."
        yield Finding("services", Level.PROBLEM, text, advice)
    if not away:
        yield Finding("services", Level.OK, f"All {len(facts.services)} services answer.")


def _versions(facts: Facts) -> Iterator[Finding]:
    found: dict[str, list[str]] = {facts.version: ["this program"]}
    for each in facts.services:
        if each.get("version"):
            found.setdefault(each["version"], []).append(each["service"])
    for agent in facts.agents or []:
        if agent.state in _CONNECTED:
            found.setdefault(agent.version, []).append(f"agent {bare(agent.name)}")
    if len(found) == 1:
        yield Finding("versions", Level.OK, f"Everything is version {facts.version}.")
        return
    text = "; ".join(f"{version}: {_names(who)}" for version, who in sorted(found.items()))
    advice = "One release apart works while an upgrade goes on; bring the rest up to date."
    yield Finding("versions", Level.WARNING, f"Several versions run: {text}.", advice)


def _clocks(facts: Facts) -> Iterator[Finding]:
    if facts.apart_ms is None:
        return
    if abs(facts.apart_ms) < CLOCKS_APART_MS:
        yield Finding("clocks", Level.OK, "This machine and the services agree on the time.")
        return
    seconds = abs(facts.apart_ms) / 1_000
    which = "ahead of" if facts.apart_ms > 0 else "behind"
    text = f"This machine's clock is {seconds:.1f} s {which} the services'."
    advice = "Times that you type are meant by this clock: have both follow a time server."
    yield Finding("clocks", Level.WARNING, text, advice)


def _pools(facts: Facts) -> Iterator[Finding]:
    agents = facts.agents or []
    for pool, leader in (facts.pools or {}).items():
        if not leader:
            advice = "See the scheduler's log, and etcd's or PostgreSQL's: elections need them."
            yield Finding("pools", Level.PROBLEM, f"Nobody leads pool {pool}.", advice)
            continue
        mine = [agent for agent in agents if agent.pool == pool]
        takes = [agent for agent in mine if _takes_work(agent)]
        if takes or facts.agents is None:
            text = f"Pool {pool} is led by {leader}, and {len(takes)} agents take work."
            yield Finding("pools", Level.OK, text)
        elif mine:
            text = f"None of the {len(mine)} agents of pool {pool} takes anything new."
            advice = "`tenure agent list` says why; `tenure agent uncordon` undoes a cordon."
            yield Finding("pools", Level.WARNING, text, advice)
        else:
            text = f"Pool {pool} has no agents."
            advice = "Start an agent for it, or a machine group (`tenure machine group create`)."
            yield Finding("pools", Level.WARNING, text, advice)


def _agents(facts: Facts) -> Iterator[Finding]:
    agents = facts.agents
    if agents is None:
        return
    state = apb.Agent.State
    lost = [bare(a.name) for a in agents if a.state == state.STATE_LOST]
    suspect = [bare(a.name) for a in agents if a.state == state.STATE_SUSPECT]
    closed = [bare(a.name) for a in agents if a.cordoned or a.draining]
    if lost:
        advice = "Start them again, or leave them: what ran there is started elsewhere."
        yield Finding("agents", Level.WARNING, f"Lost: {_names(lost)}.", advice)
    if suspect:
        advice = "Look at the network and the load of their machines."
        yield Finding("agents", Level.WARNING, f"Missed beats: {_names(suspect)}.", advice)
    if closed:
        advice = "`tenure agent uncordon` opens them again."
        yield Finding("agents", Level.WARNING, f"Cordoned or draining: {_names(closed)}.", advice)
    if not (lost or suspect or closed):
        yield Finding("agents", Level.OK, f"All {len(agents)} agents are well.")


def _sums(facts: Facts) -> Iterator[Finding]:
    advice = (
        "Stop the pool's leader (`tenure pool` cordons it) and report a bug with the output of "
    )
    if facts.over_commits:
        text = f"More is held than there is, in {facts.over_commits} spans."
        yield Finding("sums", Level.PROBLEM, text, f"{advice}`tenure slottable verify`.")
    elif facts.over_commits is not None:
        yield Finding("sums", Level.OK, "Nothing is held twice.")
    if facts.drifts:
        text = f"The ledger of usage is off for {facts.drifts} accounts."
        yield Finding("sums", Level.PROBLEM, text, f"{advice}`tenure quota verify`.")
    elif facts.drifts is not None:
        yield Finding("sums", Level.OK, "Usage is the sum over the charged leases.")


def _files(facts: Facts) -> Iterator[Finding]:
    if facts.folder is None:
        return
    open_ = [name for name, mode in facts.modes.items() if mode & 0o077]
    for name in open_:
        text = f"Others may read {facts.folder / name}."
        advice = f"chmod go-rwx {facts.folder / name}, and make new keys if others did."
        yield Finding("files", Level.PROBLEM, text, advice)
    if not open_:
        yield Finding("files", Level.OK, f"The keys in {facts.folder} are private.")


def _certificates(facts: Facts) -> Iterator[Finding]:
    well: list[CertificateFacts] = []
    for each in facts.certificates:
        problem = _problem_of(each)
        if problem is not None:
            text, advice = problem
            yield Finding("certificates", Level.PROBLEM, text, advice)
        elif each.left_ms * _WARN_BELOW < each.life_ms:
            text = f"{each.file} ends in {_span(each.left_ms)} and was not renewed in time."
            yield Finding("certificates", Level.WARNING, text, _RENEW)
        else:
            well.append(each)
    if well and len(well) == len(facts.certificates):
        first = _span(min(each.left_ms for each in well))
        text = f"All {len(well)} certificates are good; the first ends in {first}."
        yield Finding("certificates", Level.OK, text)


def _problem_of(each: CertificateFacts) -> tuple[str, str] | None:
    """Return what is wrong with a certificate, and what to do."""
    if not each.readable:
        return f"{each.file} cannot be read, or holds no certificate.", _RENEW
    if not each.fits_key:
        return f"{each.file} and its key do not belong together.", _RENEW
    if not each.trusted:
        return (
            f"{each.file} is of an authority that is not trusted here.",
            "Take certificate and authority from one place: this suite's folder, or one Secret.",
        )
    if each.left_ms <= 0:
        return f"{each.file} ended {_span(-each.left_ms)} ago.", _RENEW
    return None


def _span(span_ms: int) -> str:
    hours = span_ms / 3_600_000
    return f"{hours / 24:.0f} days" if hours >= 48 else f"{hours:.1f} h"


_WARN_BELOW: Final = 6
"""Certificates are renewed with a third of their life left; with a sixth, nobody did it."""
_RENEW: Final = (
    "`tenure up` makes certificates anew while it runs: start it. In a cluster, see cert-manager, "
    "or run helm/make_keys.py and replace the Secrets."
)
_CONNECTED: Final = frozenset({apb.Agent.STATE_ALIVE, apb.Agent.STATE_SUSPECT})
_CHECKS: Final[tuple[Callable[[Facts], Iterator[Finding]], ...]] = (
    _services,
    _versions,
    _clocks,
    _pools,
    _agents,
    _sums,
    _files,
    _certificates,
)


def _takes_work(agent: apb.Agent) -> bool:
    return agent.state == apb.Agent.STATE_ALIVE and not agent.cordoned and not agent.draining


def _names(names: Iterable[str]) -> str:
    listed = sorted(names)
    more = len(listed) - NAMED_MAX
    return ", ".join(listed[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
