"""The plugin as its own tests have it: from this directory, whether or not it is installed."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "src"))

pytest_plugins = ["pytester", "pytest_howdah"]
