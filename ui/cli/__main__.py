"""`python -m ui.cli`: the command line where no script was installed."""

import sys

from ui.cli import main

if __name__ == "__main__":
    sys.exit(main())
