"""`lode convert`, `lode completion`: tools that need no server."""

from __future__ import annotations

import click

from lodesman.answers.vocabulary import FORMS, Form
from lodesman.cli.drafts import check, label_of, parse, read_source, warn
from lodesman.cli.faults import exit_code, placed
from lodesman.cli.tables import note
from lodesman.errors import LodesmanError


@click.command()
@click.argument("file")
@click.option("--to", "target", required=True, type=click.Choice(FORMS), help="The language to write.")
@click.option(
    "--from", "form", type=click.Choice(FORMS), help="The language of FILE. [default: found from the text]"
)
@click.option("--check", "checked", is_flag=True, help="Also check that it is a job that can be submitted.")
def convert(*, file: str, target: Form, form: Form | None, checked: bool) -> int:
    """Write a description in another language, losing nothing.

    FILE is '-' for standard input.
    """
    from lodesman.jobs import write_description

    label = label_of(file)
    try:
        parsed = parse(read_source(file).data, form)
        warnings = check(parsed).warnings if checked else ()
        text = write_description(parsed.record, target)
    except LodesmanError as fault:
        note(placed(label, fault))
        return exit_code(fault)
    warn(label, warnings)
    # As it is, since it is read again by programs.
    click.echo(text if text.endswith("\n") else text + "\n", nl=False)
    return 0


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
    made = kind(context.find_root().command, {}, "lode", "_LODE_COMPLETE")
    # Not bash's own method: it starts a bash only to ask for its version.
    click.echo(ShellComplete.source(made))


COMMANDS = (convert, completion)
