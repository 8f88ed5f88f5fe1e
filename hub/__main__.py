"""``python -m hub`` is the command line ``synchub``."""

from hub.cli import main

if __name__ == "__main__":
    main()
