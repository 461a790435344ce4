"""Two rules: secrets are compared in constant time, and files with secrets are written by one function."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .tree import Source, current_tree

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDERS_WITH_SECRETS = ("auth/", "supervision/cluster/", "transports/", "actors/ensemble/", "actors/thespian_guests/")
"""Folders that receive secrets or unguessable ids from peers: here, `SECRET_NAME` decides which names count as secrets."""
ANYWHERE_SECRET_NAME = re.compile(
    r"(?:^|_)(?:secret|token|password|passphrase|credential|digest|hexdigest|h?mac|nonce|verifier|signature|proof|pepper|cookie|api_?key)s?$",
    re.IGNORECASE,
)
"""The same for all other code: names that are hardly ever used for other values."""
SECRET_NAME = re.compile(
    r"(?:^|_)(?:secret|token|password|digest|hexdigest|pbkdf2_hmac|h?mac|nonce|verifier|signature|sign|proof|pepper|state|key|cookie|code|mark|ticket"
    r"|assertion)s?$",
    re.IGNORECASE,
)
"""Names, by their last word, of possible secrets and of values that are derived from one."""

NOT_SECRET = {
    (
        "actors/exchange.py",
        "params.get('progressToken') != self._progress_token",
    ): "a progress token is the client's own name for its request",
    (
        "actors/thespian_guests/guest_messages.py",
        "message.ticket == request.ticket",
    ): "pairs answers with questions within one program",
    (
        "auth/client/login_process.py",
        "held.access_token != sent",
    ): "both are this client's: the token that was sent, and the current one",
    (
        "auth/client/login_process.py",
        "stored.access_token != old.access_token",
    ): "both are this client's, from one store",
    ("auth/client/login_process.py", "stored.access_token != sent"): "as above",
    ("auth/client/login_process.py", "stored.refresh_token == old.refresh_token"): "as above",
    ("auth/credential_headers.py", "key.lower() == name"): "the name of a header",
    (
        "auth/testing/fake_auth_endpoints.py",
        "form.get('client_assertion_type') != ASSERTION",
    ): "the name of a kind of assertion",
    ("auth/testing/fake_auth_server.py", "each.user_code == user_code"): "the test that plays the user names it",
    ("auth/testing/fake_auth_endpoints.py", "wanted == ACCESS_TOKEN"): "the name of a kind of token",
    ("src/greenroom/protocol/hash_collisions.py", "other == token <= _WORD"): "a token of a regular expression",
    ("supervision/cluster/node_records.py", "self.code == EXIT_MEMORY"): "an exit code",
    (
        "supervision/cluster/foreign_actor.py",
        "got.ticket == question.ticket",
    ): "pairs answers with questions within one program",
    ("supervision/cluster/home_links.py", "key == key_of_home()"): "both are this program's own settings",
    ("supervision/cluster/value_codec.py", "code == _GLOBAL"): "a code of a format",
    (
        "supervision/cluster/thespian_patches.py",
        "hashlib.sha256(text).hexdigest() != known",
    ): "a digest of Thespian's sources",
    ("transports/asgi.py", "key.lower() == name"): "the name of a header",
    ("transports/tls.py", "error.verify_code == _EXPIRED"): "OpenSSL's number of an error",
    ("transports/tls.py", "error.verify_code == _NOT_YET"): "as above",
    (
        "src/greenroom/skill_reader.py",
        "announced.digest != f'sha256:{sha256(data).hexdigest()}'",
    ): "a server announces the digest of a file that its client may read",
}
"""Comparisons of names that look like secrets, whose timing tells a peer nothing, each with the reason."""

CONSTANT_TIME_COMPARISONS = {
    ("auth/testing/fake_auth_endpoints.py", "_equal_in_constant_time"): 1,
    ("actors/ensemble/routed_ids.py", "read"): 1,
    ("auth/shared_secrets.py", "_equal_in_constant_time"): 1,
    ("auth/proof_of_possession.py", "_is_equal"): 1,
    ("auth/shared_secrets.py", "_is_password"): 1,
    ("auth/client/interactive_flows.py", "equal_in_constant_time"): 1,
    ("auth/shared_secrets.py", "verify_key"): 1,
    ("auth/shared_secrets.py", "verify_password"): 1,
    ("auth/shared_secrets.py", "_is_plain_digest"): 1,
    ("auth/testing/fake_auth_records.py", "matches_verifier"): 1,
    ("auth/testing/fake_auth_endpoints.py", "_authenticate_client"): 1,
    ("supervision/cluster/thespian_patches.py", "loads"): 1,
    ("supervision/cluster/framing.py", "check"): 1,
    ("supervision/cluster/framing.py", "_prove"): 1,
    ("transports/listening_sockets.py", "_on_readable"): 1,
    ("src/greenroom/observe/admin_access.py", "_find"): 1,
    ("src/greenroom/observe/admin_access.py", "is_csrf_token"): 1,
}
"""The functions that compare a peer's secrets, and the number of comparisons in each."""

WRITERS = {
    "actors/task_store_sqlite.py": "makes an empty file for SQLite, with O_EXCL",
    "auth/client/token_stores.py": "an empty lock file, which stays",
    "src/greenroom/observe/audit_log.py": "a log that several processes append to, made with 0600 and refused if others can read it",
    "src/greenroom/cli/exit_codes.py": "a result that the user wants to save, which is no secret",
    "src/greenroom/protocol/tool_pins.py": "pins are kept in a repository and are no secret, and this room imports no other room",
    "supervision/private_files.py": "the one place",
}
"""Modules that create files without `write_private`, each with the reason."""


def compared(sources: list[Source]) -> Iterator[tuple[str, str]]:
    """Each comparison by `==` or `!=` of a name that looks like a secret with a value that is no constant."""
    for source in sources:
        for node in source.nodes:
            if isinstance(node, ast.Compare) and any(isinstance(each, ast.Eq | ast.NotEq) for each in node.ops):
                sides = [node.left, *node.comparators]
                names = SECRET_NAME if source.path.startswith(FOLDERS_WITH_SECRETS) else ANYWHERE_SECRET_NAME
                constant = any(isinstance(each, ast.Constant) for each in sides)
                if not constant and any(has_secret_name(each, names) for each in sides):
                    yield source.path, ast.unparse(node)


def has_secret_name(node: ast.expr, names: re.Pattern[str] = SECRET_NAME) -> bool:
    """Whether an expression contains a name that looks like a secret, outside of the arguments of calls."""
    match node:
        case ast.Name(id=name):
            return names.search(name) is not None
        case ast.Call(func=ast.Attribute(value=value, attr="encode" | "decode" | "lower" | "upper" | "strip" | "get")):
            return has_secret_name(value, names)
        case ast.Attribute(attr=name):
            return names.search(name) is not None
        case ast.Call(func=inner) | ast.Subscript(value=inner) | ast.Await(value=inner):
            return has_secret_name(inner, names)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return any(has_secret_name(each, names) for each in parts)
        case _:
            return False


def constant_time(sources: list[Source]) -> Counter[tuple[str, str]]:
    """How often each function calls `compare_digest`."""
    found: Counter[tuple[str, str]] = Counter()
    for source in sources:
        for function in source.nodes:
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                calls = sum(
                    isinstance(node, ast.Attribute) and node.attr == "compare_digest" for node in ast.walk(function)
                )
                if calls:
                    found[source.path, function.name] += calls
    return found


def writers(sources: list[Source]) -> set[str]:
    """Modules that create files with a mode, or temporary files."""
    return {
        source.path
        for source in sources
        for node in source.nodes
        if isinstance(node, ast.Attribute) and node.attr in ("O_CREAT", "mkstemp", "NamedTemporaryFile")
    }


@pytest.fixture(name="sources", scope="module")
def _sources() -> list[Source]:
    return current_tree(Path(__file__).parents[2]).sources


def test_a_possible_secret_is_not_compared_by_equality(sources: list[Source]) -> None:
    found = set(compared(sources))
    assert found - set(NOT_SECRET) == set(), (
        "compare with hmac.compare_digest, or add the comparison to NOT_SECRET with the reason"
    )
    assert set(NOT_SECRET) - found == set(), "these comparisons no longer exist: take them out of the table"


def test_secrets_from_peers_are_compared_in_constant_time(sources: list[Source]) -> None:
    assert dict(constant_time(sources)) == CONSTANT_TIME_COMPARISONS


def test_private_files_are_made_in_one_place(sources: list[Source]) -> None:
    assert writers(sources) == set(WRITERS), (
        "use supervision.private_files.write_private, or add the module to WRITERS with the reason"
    )


@pytest.mark.parametrize(
    "bad",
    [
        "token == shown",
        "shown != self._secret",
        "one.encode() == other.password.encode()",
        "hash_key(key, pepper).encode() == stored",
        "hashlib.sha256(x).hexdigest() == stored.lower()",
        "hashlib.pbkdf2_hmac('sha256', a, b, 1) == digest",
        "self._sign(who) == proof",
        "self.mac(kind, payload) == mac[:8]",
        "(user, password) == (known, kept)",
        "await self.state() == back",
    ],
)
def test_a_comparison_that_leaks_timing_is_found(bad: str) -> None:
    assert list(compared([Source("auth/x.py", "greenroom.auth.x", f"def f():\n    return {bad}\n")])) != []


@pytest.mark.parametrize("bad", ["token == shown", "shown.api_key != self._secret", "digest(one) == kept"])
def test_a_secret_is_found_in_every_room(bad: str) -> None:
    for path in ("actors/x.py", "src/greenroom/x.py", "supervision/x.py"):
        assert list(compared([Source(path, "greenroom.x", f"def f():\n    return {bad}\n")])) != [], path


@pytest.mark.parametrize(
    "fine", ["token == ''", "kind == 'secret'", "hmac.compare_digest(token, shown)", "len(token) == n"]
)
def test_a_comparison_that_leaks_nothing_is_allowed(fine: str) -> None:
    assert list(compared([Source("auth/x.py", "greenroom.auth.x", f"def f():\n    return {fine}\n")])) == []
