"""`python -m penstock` is `penstock`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line. The version is printed without loading it: scripts ask often."""
    if sys.argv[1:] in (["version"], ["--version"]):
        import platform

        from penstock import __version__

        sys.stdout.write(f"penstock {__version__} on Python {platform.python_version()}\n")
        return
    from penstock.cli import app
    from penstock.core.telemetry import use_environment

    command = next((word for word in sys.argv[1:] if not word.startswith("-")), "command")
    use_environment(f"penstock-{command}")
    app(prog_name="penstock")


if __name__ == "__main__":
    main()
