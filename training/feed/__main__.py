from __future__ import annotations

import sys

from dyntrain.training.feed.command import main

sys.exit(main())
