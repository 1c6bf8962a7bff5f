"""`tenure completion`: what a shell has to read to complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print completions for a shell; for bash: eval "$(tenure completion bash)"."""
    made = get_completion_class(shell)
    assert made is not None  # click has all of SHELLS
    root = context.find_root().command
    click.echo(made(root, {}, "tenure", "_TENURE_COMPLETE").source())
