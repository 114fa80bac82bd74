"""`python -m spec`."""

import sys

from spec.command_line import main

sys.exit(main())
