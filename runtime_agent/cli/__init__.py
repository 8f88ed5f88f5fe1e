"""The command line ``runtime-agent``: one module a command, put together here.

Exit codes: 0 done, 1 refused or failed with a sentence on standard error, 2 wrong usage.
"""

import os
import sys

# gRPC's own log would stand between the lines of the agent's, once a try for as long as a hub is not trusted.
# What it says is said by the ends of calls. It is read when gRPC is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

try:
    import typer

    from runtime_agent import __version__
    from runtime_agent.cli import append, exec_program, import_file, quarantine, start, status, tail
    from runtime_agent.core.errors import RuntimeAgentError, UsageError
except KeyboardInterrupt:
    # Ctrl-C while the command line is still being loaded; nothing was done yet.
    sys.exit(130)

app = typer.Typer(
    name="runtime-agent",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"runtime-agent {__version__}")
        raise typer.Exit


@app.callback()
def runtime_agent(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and end."
    ),
) -> None:
    """Keep the events of runs in a durable local log, and bring each to the hub exactly once.

    What is appended is on stable storage when the command returns, with no hub in sight. `start`
    runs the agent that syncs it; all other commands work with and without it.
    """


app.command("start")(start.start)
app.command("append")(append.append)
app.command("import")(import_file.import_files)
app.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})(
    exec_program.exec_program
)
app.command("status")(status.status)
app.command("tail")(tail.tail)
app.add_typer(quarantine.app, name="quarantine")


def main() -> None:
    """Run the command line and end the process with its exit code."""
    try:
        app()
    except RuntimeAgentError as error:
        hint = f"\n  {error.hint}" if error.hint else ""
        print(f"runtime-agent: {error}{hint}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UsageError) else 1)
    except BrokenPipeError:
        # Whoever read our output has gone; the interpreter must not try to flush to it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
