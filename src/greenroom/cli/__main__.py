"""``python -m greenroom.cli`` is ``greenroom``."""

from . import main

main()
