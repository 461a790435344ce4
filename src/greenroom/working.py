"""Running a server with workers: the address is bound here, once, and named; then the workers are looked after until a signal comes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from greenroom.actors.pools.handler_spec import NotLoaded
from greenroom.supervision import ActorError
from greenroom.transports.binding import NotHandedOver

from . import running
from .errors import GreenroomError
from .listening import announce, bound, urls_of
from .lookout import lookout_child
from .worker_processes import Workers, application_of, check_workers, printing, worker_error

if TYPE_CHECKING:
    from greenroom.transports.http_config import HttpConfig

    from .server import Server


def run_workers(server: Server, config: HttpConfig, grace: float, count: int, *, inspect: bool = False) -> None:
    """Until they are told to stop, and have. Raises `ConfigError`, `CannotListen`, `GaveUp`."""
    application = application_of(server)
    check_workers(count)
    binding = bound(config)
    try:
        urls = urls_of(binding, config)
        seen = [lookout_child(server.settings.name, lambda: urls)] if inspect else []
        workers = Workers(count, application, config, binding, grace, seen)
        workers.doors.announce = lambda: announce(server.settings.name, urls)
        with printing():
            running.run(lambda: [workers.child_spec()], grace=grace)
    except (ActorError, NotLoaded, NotHandedOver) as error:
        sys.exit(f"greenroom: no worker could be started: {_in_words(worker_error(error))}")
    finally:
        binding.close()


def _in_words(error: BaseException) -> str:
    ours = isinstance(error, GreenroomError)  # which say it whole
    return str(error) if ours else f"{type(error).__name__}: {error}"
