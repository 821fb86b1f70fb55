"""`python -m paribus` is `paribus`."""

from paribus.cli import main

if __name__ == "__main__":
    main()
