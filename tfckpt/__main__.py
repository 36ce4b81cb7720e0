"""``python -m tfckpt``: the command line."""

import sys

from tfckpt.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
