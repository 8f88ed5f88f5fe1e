"""The command line ``synchub``: one module a command group, put together in ``main``.

Exit codes: 0 done, 1 refused or failed with a sentence on standard error, 2 wrong usage. A person's
mistake never shows a traceback.
"""

import os
import sys

# gRPC's own log would let strangers write lines of their choice into the hub's: it has the names that they
# ask for at handshakes. What matters are the ends of calls, which programs see themselves. It is read when
# gRPC is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

try:
    from hub.cli.main import main
except KeyboardInterrupt:
    # Ctrl-C while the command line is still being loaded; nothing was done yet.
    sys.exit(130)

__all__ = ["main"]
