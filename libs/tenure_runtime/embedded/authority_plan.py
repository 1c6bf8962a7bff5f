"""When authorities and certificates are renewed: decided from their spans alone.

An authority is followed by a new one when a third of its life is left. The new one is trusted at
once and signs only after `overlap_ms`, when everybody has read that it is trusted; the old one is
trusted until it ends. So there is no moment at which two sides trust nothing in common.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tenure_core.timebase import Interval, Millis


@dataclass(frozen=True, slots=True)
class CertificateTerms:
    """How long certificates live, in ms. `early_ms` before now they begin: clocks differ."""

    authority_ms: Millis = 365 * 86_400_000
    certificate_ms: Millis = 86_400_000
    overlap_ms: Millis = 3_600_000
    early_ms: Millis = 300_000


@dataclass(frozen=True, slots=True)
class AuthorityPlan:
    """What to do about authorities: who is trusted, who signs, whether a new one is needed."""

    trusted: tuple[int, ...]
    signer: int | None
    needs_new: bool


def plan_authorities(
    known: Mapping[int, Interval], now_ms: Millis, terms: CertificateTerms
) -> AuthorityPlan:
    """Judge authorities, which are known by number (a larger one is younger)."""
    trusted = tuple(number for number in sorted(known) if known[number].end > now_ms)
    if not trusted:
        return AuthorityPlan((), None, needs_new=True)
    settled = [
        number
        for number in trusted
        if known[number].start + terms.early_ms + terms.overlap_ms <= now_ms
    ]
    signer = settled[-1] if settled else trusted[0]
    return AuthorityPlan(trusted, signer, ends_soon(known[trusted[-1]], now_ms))


def ends_soon(span: Interval, now_ms: Millis) -> bool:
    """Say whether less than a third of a certificate's life is left."""
    return 3 * (span.end - now_ms) < span.end - span.start


def certificate_span(authority: Interval, now_ms: Millis, terms: CertificateTerms) -> Interval:
    """Return the life of a new certificate: never longer than its authority's."""
    return Interval(
        max(now_ms - terms.early_ms, authority.start),
        min(now_ms + terms.certificate_ms, authority.end),
    )
