"""``python -m runtime_agent`` is the command line ``runtime-agent``."""

from runtime_agent.cli import main

if __name__ == "__main__":
    main()
