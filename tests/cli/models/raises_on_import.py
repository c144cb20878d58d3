"""It cannot be imported."""

import json

CONFIG = json.loads("{'width': 48}")
