"""`python -m precision_agent` is `precision-agent`."""

from precision_agent.run.cli import main

if __name__ == "__main__":
    main()
