"""Puts the command line together: one line a command."""

from importlib.metadata import version
from typing import Annotated

import typer

from hub.cli import (
    alerts,
    backup,
    demo,
    events,
    export,
    info,
    journal,
    leases,
    migrate,
    outbox,
    projects,
    prune,
    restore,
    runs,
    runtimes,
    serve,
    tail,
    token,
    verify,
)
from hub.cli.output import failures_told
from hub.cli.shown_credentials import add_credential_options

app = typer.Typer(
    name="synchub",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"synchub {version('synchub')}")
        raise typer.Exit


@app.callback()
def synchub(
    is_version_asked: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Run a hub that takes each event of many runtimes exactly once, and look at what it holds."""


app.command("serve", epilog=serve.EXAMPLES)(serve.serve)
app.command("demo", epilog=demo.EXAMPLES)(demo.demo)
app.command("runs", epilog=runs.EXAMPLES)(runs.runs)
app.command("events", epilog=events.EXAMPLES)(events.events)
app.command("tail", epilog=tail.EXAMPLES)(tail.tail)
app.command("export", epilog=export.EXAMPLES)(export.export)
app.add_typer(alerts.app, name="alerts")
app.command("runtimes", epilog=runtimes.EXAMPLES)(runtimes.runtimes)
app.add_typer(leases.app, name="leases")
app.add_typer(journal.app, name="journal")
app.add_typer(outbox.app, name="outbox")
app.add_typer(projects.app, name="project")
app.add_typer(projects.app, name="projects", hidden=True)  # its former name
app.add_typer(token.app, name="token")
app.command("backup", epilog=backup.EXAMPLES)(backup.backup)
app.command("restore", epilog=restore.EXAMPLES)(restore.restore)
app.command("verify", epilog=verify.EXAMPLES)(verify.verify)
app.command("prune", epilog=prune.EXAMPLES)(prune.prune)
app.command("migrate", epilog=migrate.EXAMPLES)(migrate.migrate)
app.command("info", epilog=info.EXAMPLES)(info.info)

# After the last command: each that asks a hub takes the options that say what it shows.
add_credential_options(app)


def main() -> None:
    """Run the command line and end the process with its exit code."""
    with failures_told():
        app()
