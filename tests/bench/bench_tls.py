"""What mutual TLS costs a CreateLease: pairs of rounds, with it and in plain text.

    python -m tests.bench.bench_tls [--rounds 5] [--seconds 4] [--callers 64]

Two admission processes, each with a PostgreSQL of its own, take turns. Prints for each pair the
ratio of rates and of CPU time a call (server, client and PostgreSQL together), and the medians: a
ratio of CPU times stands still when the machine is busy with other things.
"""

from __future__ import annotations

import argparse
import asyncio
from statistics import median

from tests.bench.bench_create_lease import measure, started


def cpu_us(result: dict[str, float], *parts: str) -> float:
    """Return the CPU time a call of these parts together, in µs."""
    return sum(result[f"{part}_s"] for part in parts) / result["calls"] * 1e6


async def main(arguments: argparse.Namespace) -> None:
    """Measure pairs and print them."""
    all_parts = ("server", "postgres", "client")
    rates, totals, servers = [], [], []
    async with started() as plain, started(tls=True) as secure:
        for number in range(arguments.rounds):
            order = (plain, secure) if number % 2 == 0 else (secure, plain)
            found = {each.tls: await measure(each, "singles", arguments) for each in order}
            without, with_it = found[None], found[secure.tls]
            speed = [each["calls"] / each["taken_s"] for each in (without, with_it)]
            rates.append(speed[1] / speed[0])
            totals.append(cpu_us(with_it, *all_parts) / cpu_us(without, *all_parts))
            servers.append(cpu_us(with_it, "server") / cpu_us(without, "server"))
            print(
                f"plain {speed[0]:,.0f}/s, {cpu_us(without, *all_parts):,.0f} us a call; "
                f"TLS {speed[1]:,.0f}/s, {cpu_us(with_it, *all_parts):,.0f} us; "
                f"ratios: rate {rates[-1]:.3f}, CPU {totals[-1]:.3f}, server {servers[-1]:.3f}",
                flush=True,
            )
    print(
        f"median ratios, TLS to plain: rate {median(rates):.3f}, CPU of all {median(totals):.3f}, "
        f"CPU of the server {median(servers):.3f}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--callers", type=int, default=64)
    asyncio.run(main(parser.parse_args()))
