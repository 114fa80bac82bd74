"""`python -m cleancut`."""

import sys

from cleancut.check import main

sys.exit(main())
