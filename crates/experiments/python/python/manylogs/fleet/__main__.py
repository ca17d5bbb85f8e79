"""``python -m manylogs.fleet`` is ``manylogs-fleet``."""

import sys

from . import main

if __name__ == "__main__":
    sys.exit(main())
