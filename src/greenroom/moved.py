"""Modules and names that have moved: the old paths can be imported until the next minor version, with a warning that says the new one."""

from __future__ import annotations

import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import ModuleType

_MOVED: Final = {
    "actors.calls": "inflight",
    "actors.catalogue": "lists callers scopes",
    "actors.client.errands": "attendant",
    "actors.client.handshake": "reach greeting reports",
    "actors.client.readers": "board",
    "actors.client.requests": "pending",
    "actors.company": "handle others peers",
    "actors.consent.consent": "turns memory",
    "actors.consent.rules": "globs errors",
    "actors.elicitation.bridge": "forms",
    "actors.ensemble.session_router": "node_messages words marks desk door elsewhere lending spreading",
    "actors.entries": "listed binding",
    "actors.federation.federation": "lines news",
    "actors.federation.federation_errors": "errors agent_errors",
    "actors.federation.offering": "seam",
    "actors.federation.specs": "annex",
    "actors.federation.upstream": "list_refresher curator sentry vital",
    "actors.federation.upstream_requests": "requests gate fan_out",
    "actors.gateway.client_connections": "lodgings desk seam",
    "actors.gateway.gateway": "following keeper",
    "actors.gateway.view": "addresses",
    "actors.guest.guest": "pending followers",
    "actors.guest.guest_session": "visit answers",
    "actors.guest.guest_wire": "wire keys",
    "actors.guest.listener": "reception door knocking reports",
    "actors.guest.messages": "asking",
    "actors.handlers": "options actors.pools.places",
    "actors.jobs": "actors.pools.at_home cancellation hooks",
    "actors.mentions.reader": "grammar expansion shelf",
    "actors.names": "card",
    "actors.output.limits": "keeper spill",
    "actors.peer_channels": "voice outbound asking",
    "actors.pools.handler_spec": "plans loading",
    "actors.pools.pools": "crews lodging premises process_provider",
    "actors.pools.remote_call": "order facts words claims",
    "actors.pools.scheduler": "foreman hands attempts",
    "actors.pools.worker_main": "seat far_voice",
    "actors.pools.worker_proxy": "minder losses",
    "actors.registry": "registrar readiness",
    "actors.reply_sinks": "outlets channel",
    "actors.server_questions": "asking_calls asker questions",
    "actors.session": "agreement handshake",
    "actors.sessions": "tidying",
    "actors.streams": "feeds",
    "actors.task_collector": "task_listeners task_voice",
    "actors.task_record": "task_words task_endings",
    "actors.task_store_sqlite": "task_file",
    "actors.tasks": "task_keeper task_calls",
    "actors.worker": "answers tool_calls prompts reads completions local calling",
    "auth.bearer": "claims resource_document",
    "auth.client.code_flow": "landing browsers device_flow",
    "auth.client.credential": "keeper challenges",
    "auth.client.discovery": "metadata pkce words",
    "auth.client.door": "reaching per_caller",
    "auth.client.oauth": "revoking",
    "auth.client.registration": "identity",
    "auth.client.stores": "locks sealing record keyring_store",
    "auth.client.token_calls": "ways",
    "auth.gate": "failures",
    "auth.grants": "answers info seam",
    "auth.headers": "urls",
    "auth.introspection": "keyset own_fetcher",
    "auth.shared_secrets": "api_key basic hashing remembered custom nobody",
    "auth.testing.book": "words faults",
    "auth.testing.server": "wire signing",
    "auth.testing.tokens": "pages giving",
    "cli.asking": "prompting",
    "cli.calling": "progress reading",
    "cli.commands": "words",
    "cli.door": "completing option_types",
    "cli.endings": "spelling writing",
    "cli.entries": "program_file toml_file",
    "cli.inspecting": "listing oddities",
    "cli.installing": "attaching",
    "cli.serving": "gateway renewing",
    "client": "client_tools",
    "client_callbacks": "answering asked",
    "config.config_sync": "household reconciler watcher steps regime",
    "config.documents": "json_lines toml_lines",
    "config.fields": "kinds",
    "config.reader": "building lookup",
    "config.variables": "environment places",
    "decorators": "registrations words",
    "host": "guests host_words",
    "hosted_server": "hosted",
    "mounting": "lifespans",
    "protocol.collisions": "probing",
    "protocol.content": "sampling",
    "protocol.forms": "elicitations form_rules",
    "protocol.keywords": "canonical",
    "protocol.messages": "salvage json",
    "protocol.methods": "complaints negotiation automaton",
    "protocol.outgoing": "fitting",
    "protocol.patterns": "pattern_syntax",
    "protocol.problems": "meter",
    "protocol.provider_rules": "provider_names provider_schemas",
    "protocol.results": "returns",
    "protocol.schema_nodes": "keyword_shapes subschemas",
    "protocol.sse": "lines",
    "protocol.wire": "library_values",
    "running": "last_resort",
    "server": "outside thespian_words",
    "service": "callbacks",
    "supervision.behaviours.caller": "actions",
    "supervision.behaviours.calls": "requests",
    "supervision.behaviours.gen_server": "serving methods reporting server",
    "supervision.behaviours.starting": "becoming",
    "supervision.behaviours.task": "streams supervision.kernel.routine",
    "supervision.cluster.addresses": "naming",
    "supervision.cluster.bootstrap": "boots inherited lifeline guests",
    "supervision.cluster.cluster": "host",
    "supervision.cluster.crash_output": "last_words utterances",
    "supervision.cluster.daemon_protocol": "orders lodging",
    "supervision.cluster.engine": "placing",
    "supervision.cluster.foreign": "attendants",
    "supervision.cluster.framing": "sealing",
    "supervision.cluster.keeper": "thespian_system",
    "supervision.cluster.machines": "placement",
    "supervision.cluster.node_main": "hosting mains node_host",
    "supervision.cluster.node_records": "charges endings",
    "supervision.cluster.peers": "dialling silence peering",
    "supervision.cluster.remote_process": "far abroad",
    "supervision.cluster.switch": "incoming",
    "supervision.cluster.thespian_taming": "thespian_door hardening versions leftovers",
    "supervision.cluster.warden": "process_engine",
    "supervision.introspect": "snapshot tracing",
    "supervision.kernel.clock": "timers gate",
    "supervision.kernel.current": "names",
    "supervision.kernel.guard": "interrupts",
    "supervision.kernel.messages": "pid reasons",
    "supervision.kernel.node": "workers",
    "supervision.kernel.process": "behaviour exits away",
    "supervision.kernel.watchdog": "stacks",
    "supervision.registry": "key_locks",
    "supervision.statem.events": "results",
    "supervision.statem.machine": "agenda",
    "supervision.statem.plan": "drawing",
    "supervision.supervisors.base": "children shutdown intensity",
    "supervision.supervisors.spec": "strategy backoff errors",
    "supervision.supervisors.tree": "clients",
    "supervision.testing.faults": "holding sabotage taps",
    "supervision.testing.histories": "checking",
    "supervision.testing.injection": "targets",
    "supervision.testing.recorder": "collected",
    "supervision.testing.replay": "shrinking kept",
    "supervision.testing.stage": "performing",
    "supervision.testing.virtual_time": "waits outside",
    "testing.rough": "sockets",
    "thespian_tools": "actors.guest.actor_tools",
    "transports.asgi": "quart_app",
    "transports.binding": "shares handover",
    "transports.channel": "memory",
    "transports.client.command_child": "command_guardian",
    "transports.client.command_wire": "command_ears command_outlet",
    "transports.client.errors": "http_refusal",
    "transports.client.http_address": "guard http_dial",
    "transports.client.http_pool": "http_connection http_reader",
    "transports.client.http_posts": "http_stream http_visit",
    "transports.client.http_settings": "http_tls",
    "transports.client.http_streams": "http_listening http_old",
    "transports.client.http_wire": "http_letterhead",
    "transports.client.remote_wire": "far_route far_outpost far_words",
    "transports.client.seam": "http_carrier tickets",
    "transports.http1": "http1_head",
    "transports.http2": "http2_gate http2_pipe",
    "transports.http_engine": "http_old",
    "transports.http_exchange": "http_checks interruption body_budget http_answers",
    "transports.listener": "acceptor",
    "transports.open_connections": "hall sources sockets",
    "transports.stdio": "lingering standard",
    "transports.tls": "tls_wire",
    "worker_processes": "workers station roster wing applications working",
}
"""The modules that others have become a part of; one of the same package by its last name, another one by its path below `greenroom`."""


_NAMES: Final = {
    "greenroom.auth": "APIKeyAuth AuthInfo BasicAuth BearerAuth ClientCredentials CustomAuth Denied DeviceCode "
    "EnterpriseManaged FileStore GivenTokens Introspection KeySet KeyringStore MemoryStore NoAuth OAuth "
    "OAuthResource Protected SignIn SignInError TokenStore best_store hash_key hash_password open_browser "
    "paste_back show_code signing_key verify_key verify_password",
    "greenroom.host": "Annex Consent ConsentAnswer ConsentDenied ConsentQuestion ElicitationBridge OpenQuestion OutputLimit "
    "OutputLimits Permissions Pins Rule ToolRefused",
    "greenroom.transports": "ConnectFailed ConnectionLost Fetcher FixedHeaders Guard HttpError HttpRoute HttpSettings NodeEnded "
    "NotMcp ProcessDied RequestTooLarge ResponseTooLarge SessionGone SilentTooLong SseRoute Trust "
    "WireFull",
}
"""The names that have left the front door, by the module that has them now."""


def _places() -> dict[str, str]:
    places: dict[str, str] = {}
    for place, names in _MOVED.items():
        package = place.rpartition(".")[0]
        for name in names.split():
            old = name if "." in name or not package else f"{package}.{name}"
            places[f"greenroom.{old}"] = f"greenroom.{place}"
    return places


PLACES: Final = _places()
"""The path of each module today, by the path that it had."""


class _Alias:
    """Loads a module under the path that it had."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:  # noqa: ARG002 - the module is there already
        module = import_module(self._place)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import has put its own in this place


def spec_of_moved(name: str) -> ModuleSpec | None:
    """How to load a module that has moved, by the path that it had; None for any other."""
    place = PLACES.get(name)
    if place is None:
        return None
    warnings.warn(f"{name} has moved: import {place}", DeprecationWarning, stacklevel=3)
    return ModuleSpec(name, _Alias(place), origin=place)  # type: ignore[arg-type]


def home_of_moved(package: str, name: str) -> str | None:
    """The module that has a name which has left the front door; None for any other."""
    place = next((place for place, names in _NAMES.items() if package == "greenroom" and name in names.split()), None)
    if place is not None:
        warnings.warn(f"greenroom.{name} has moved: from {place} import {name}", DeprecationWarning, stacklevel=4)
    return place
