"""`tenure`: finds the command that is asked for, and loads nothing else."""

from __future__ import annotations

import importlib
import sys
from typing import Final

import click

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "run": ("run", "Run a command under a lease; show its output; return its exit code."),
    "lease": ("lease", "Create, list, watch, wait for, change, cancel and explain leases."),
    "series": ("series", "Book what recurs by a rule; show, change and give up parts of it."),
    "trace": ("trace", "Show what became of a lease, step by step and with times."),
    "queue": ("queue", "Show who waits in a pool, in order, and for what."),
    "whatif": ("whatif", "Predict starts: of what waits, of a lease, under another policy."),
    "availability": ("availability", "Show when capacity is free."),
    "maintenance": ("maintenance", "Take nodes out of use for a span; show who has to move."),
    "slottable": ("slottable", "Show how far the slot table is, and whether it adds up."),
    "agent": ("agent", "Show agents; cordon, drain and uncordon them."),
    "pool": ("pool", "Show and change pools and their policies."),
    "quota": ("quota", "Show and set what owners and projects may hold; show what they use."),
    "key": ("key", "Make, list, rotate and withdraw API keys."),
    "certificate": ("certificate", "Make a certificate for a person, by this suite's authority."),
    "login": ("login", "Sign in: by an OIDC issuer, or with a key or token from a file."),
    "context": ("context", "Show, choose and set where the services are and as whom to call."),
    "notices": ("notices", "Show and set how you are told of your leases; try it."),
    "audit": ("audit", "Show who changed what; verify that nothing of it was tampered with."),
    "machine": ("machine", "Show machines and what the autoscaler would do."),
    "status": ("status", "Show the services, their versions, and who leads."),
    "doctor": ("doctor", "Look at everything; say what is wrong and what to do."),
    "config": ("config", "Show and check what a service would be told here."),
    "up": ("up", "Start the whole suite on this machine."),
    "down": ("down", "Stop the suite on this machine; its state is kept."),
    "reset": ("down", "Forget everything that a suite on this machine stored."),
    "backup": ("backup", "Write the suite on this machine to one file."),
    "restore": ("backup", "Make a suite from such a file."),
    "demo": ("demo", "Show it all: a workload of real processes, verified."),
    "simulate": ("simulate", "Replay a workload trace under a policy."),
    "completion": ("completion", "Print what a shell has to read to complete commands."),
}
"""Each command: its module in `tenure_cli.commands`, and its line in the help."""


class LazyCommands(click.Group):
    """Loads a command's module when the command is used: `tenure --help` loads none."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's own
        """Return the commands in the order in which people meet them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return a command, None when there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"tenure_cli.commands.{COMMANDS[cmd_name][0]}")
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of commands without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tenure")
def cli() -> None:
    """Lease compute: n nodes with certain amounts, for a duration, now or at a time."""


def _run() -> object:
    for argument in sys.argv[1:]:
        if not argument.isascii() and any("\ud800" <= char <= "\udfff" for char in argument):
            raise click.UsageError(f"{argument!r} is not in UTF-8")
    return cli.main(prog_name="tenure", standalone_mode=False)


def main() -> int:
    """Run the command line and return its exit code."""
    from tenure_cli.failures import guarded

    return guarded(_run)


if __name__ == "__main__":
    sys.exit(main())
