"""`lode completion`."""

from __future__ import annotations

import click

from lodesman.user.cli.root import COMPLETES


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, /, *, shell: str) -> None:
    """Print the script that completes commands in a shell.

    For bash: eval "$(lode completion bash)" in ~/.bashrc; for zsh the same in ~/.zshrc; for fish: lode
    completion fish > ~/.config/fish/completions/lode.fish
    """
    from click.shell_completion import ShellComplete, get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101  # these three are built in
    made = kind(context.find_root().command, {}, "lode", COMPLETES)
    # Not bash's own method: it starts a bash only to ask for its version.
    click.echo(ShellComplete.source(made))
