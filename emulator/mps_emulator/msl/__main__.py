"""Entry point of ``python -m mps_emulator.msl``, and of this folder as a file.

The emulator starts this folder by its path: an import of the package
mps_emulator would load torch, which the front end does not need.
"""

import importlib.util
import os
import sys


def _load_by_path():
    """Imports this folder as a top-level package."""
    folder = os.path.dirname(os.path.abspath(__file__))
    # The interpreter put this folder in front; its modules are not top-level.
    sys.path[:] = [entry for entry in sys.path if not entry or os.path.abspath(entry) != folder]
    name = "_mps_emulator_msl"
    spec = importlib.util.spec_from_file_location(
        name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return name


if __name__ == "__main__":
    package = __package__ or _load_by_path()
    cli = importlib.import_module(package + ".cli")
    sys.exit(cli.main())
