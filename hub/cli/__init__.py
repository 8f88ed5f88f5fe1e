"""The command line ``synchub``: one module a command group, put together in ``main``.

Exit codes: 0 done, 1 refused or failed with a sentence on standard error, 2 wrong usage. A person's
mistake never shows a traceback.
"""

from hub.cli.main import main

__all__ = ["main"]
