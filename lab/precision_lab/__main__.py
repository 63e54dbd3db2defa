"""`python -m precision_lab`: the lab's command line."""

from precision_lab.cli import main

if __name__ == "__main__":
    main()
