"""Where librdkafka's own lines go."""

from __future__ import annotations

import logging

client_log = logging.getLogger("drkit.librdkafka")
