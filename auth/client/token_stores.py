"""Token stores: logins and client registrations in memory, in an encrypted file, or in the system's keyring.

Entries are small JSON objects under keys. A caller that changes an entry holds its lock, which excludes other OS processes too for a file or a keyring.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import stat
import time
from collections import defaultdict
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from greenroom.auth.auth_info import number, parse_object, text, texts
from greenroom.auth.errors import SignInError
from greenroom.auth.user_folders import data_folder
from greenroom.errors import ConfigError
from greenroom.protocol.jsonrpc import encode, is_object
from greenroom.protocol.sealing import decrypted, file_cipher, new_file_key
from greenroom.supervision.private_files import check_folder, write_private

from .dpop_proofs import ProofKey

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Hashable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from greenroom.protocol.sealing import FileCipher

    from .token_requests import TokenResponse

log = logging.getLogger(__name__)

LOCK_TIMEOUT: Final = 360.0
"""Seconds to wait for another program that is signing in: longer than its user may take."""
_FILE_LOCK_TIMEOUT: Final = 10.0


def name_lock(folder: Path, key: str) -> AbstractAsyncContextManager[None]:
    """Lock a key by a file in that folder, across processes. Raises `SignInError` when another program holds it for too long."""
    digest = hashlib.sha256(key.encode()).hexdigest()[:32]
    return file_lock(_private_folder(folder) / f"{digest}.lock", LOCK_TIMEOUT, readable=True)


@contextlib.contextmanager
def store_failures() -> Generator[None]:
    """Raise an `OSError` of a program's own store as `SignInError`. For calls of the store alone, not for what happens under its lock."""
    try:
        yield
    except OSError as error:
        raise SignInError("store", f"the token store failed: {os_error_text(error)}", temporary=True) from None


def os_error_text(error: OSError) -> str:
    """The text of an error, or its type if it has none, as with `TimeoutError()`. It contains no stored value."""
    return error.strerror or type(error).__name__


def _private_folder(folder: Path) -> Path:
    """The folder, created if necessary. Raises `SignInError`."""
    with _file_failures(f"{folder} cannot be created", lambda _: "name another folder"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_folder(folder)
    return folder


class TokenStore(Protocol):
    """Stores logins and client registrations. Each method raises `SignInError` on failure."""

    @property
    def name(self) -> Hashable:
        """Identifies the store: two stores with equal names are the same one."""

    async def get(self, key: str) -> Mapping[str, Any] | None:
        """The entry of a key, if there is one."""

    async def put(self, key: str, entry: Mapping[str, Any] | None) -> None:
        """Store an entry; None deletes it."""

    def lock(self, key: str) -> AbstractAsyncContextManager[None]:
        """Lock a key against changes by others."""
        ...


class MemoryStore:
    """A store in memory, lost when the program ends. For one event loop at a time."""

    def __init__(self) -> None:
        self._entries: dict[str, dict[str, Any]] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def __repr__(self) -> str:
        return f"MemoryStore({len(self._entries)} entries)"

    @property
    def name(self) -> Hashable:
        """The identity of this object."""
        return id(self)

    async def get(self, key: str) -> Mapping[str, Any] | None:
        """The entry of a key, if there is one."""
        return self._entries.get(key)

    async def put(self, key: str, entry: Mapping[str, Any] | None) -> None:
        """Store an entry; None deletes it."""
        if entry is None:
            self._entries.pop(key, None)
        else:
            self._entries[key] = dict(entry)

    def lock(self, key: str) -> AbstractAsyncContextManager[None]:
        """Lock a key."""
        return self._locks[key]


class FileStore:
    """An encrypted file in a folder of the user, readable by its owner alone."""

    def __init__(
        self, folder: str | os.PathLike[str] | None = None, *, key: bytes | str | None = None, app: str = "greenroom"
    ) -> None:
        """`folder` defaults to the system's folder for user data of `app`. `key` encrypts; by default a key file beside it is used."""
        self.folder = data_folder(app) if folder is None else Path(folder)
        self._seal = None if key is None else seal_from_key(key)

    def __repr__(self) -> str:
        return f"FileStore({str(self.folder)!r})"

    @property
    def name(self) -> Hashable:
        """The path of the folder."""
        return str(self.folder.absolute())

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self.folder / "credentials"

    async def get(self, key: str) -> Mapping[str, Any] | None:
        """The entry of a key, if there is one."""
        entry = self._read().get(key)
        return entry if is_object(entry) else None

    async def keys(self) -> Sequence[str]:
        """The keys of all entries."""
        return tuple(self._read())

    async def put(self, key: str, entry: Mapping[str, Any] | None) -> None:
        """Store an entry; None deletes it. The file is replaced as a whole, so a crash leaves the old one."""
        async with file_lock(_private_folder(self.folder) / "credentials.lock", _FILE_LOCK_TIMEOUT):
            entries = self._read()
            if entry is None:
                entries.pop(key, None)
            else:
                entries[key] = dict(entry)
            sealed = self._opened_seal().encrypt(encode(entries))
            with _file_failures(f"{self.path} cannot be written", advice):
                write_private(self.path, sealed)

    def lock(self, key: str) -> AbstractAsyncContextManager[None]:
        """Lock a key across processes, even where nothing can be written."""
        return name_lock(self.folder, key)

    def _opened_seal(self) -> FileCipher:
        if self._seal is None:
            path = self.folder / "credentials.key"
            with _file_failures(f"{path}, the key that encrypts logins, cannot be read"):
                self._seal = seal_from_key(load_or_create_key(path))
        return self._seal

    def _read(self) -> dict[str, Any]:
        with _file_failures(f"{self.path} cannot be read"):
            try:
                check_folder(self.folder)
                sealed = read_private(self.path)
            except FileNotFoundError:
                return {}
        content = decrypted(self._opened_seal(), sealed)
        if content is not None and (entries := parse_object(content)) is not None:
            return entries
        log.warning(
            "%s cannot be decrypted with its key: it is renamed to .unreadable, and users have to sign in again",
            self.path,
        )
        with contextlib.suppress(OSError):
            self.path.replace(self.path.with_suffix(".unreadable"))
        return {}


# --- The system's keyring, with `pip install greenroom[keyring]`. It is called in a thread, since it may ask the user.

_NAMES_ENTRY: Final = "names of entries"


class KeyringStore:
    """A store in the system's keyring."""

    def __init__(self, service: str = "greenroom", *, folder: str | os.PathLike[str] | None = None) -> None:
        """`service` is the service name of the entries; `folder` contains the locks. Raises `ConfigError` without a usable keyring."""
        try:
            import keyring  # noqa: PLC0415 - an optional dependency
            from keyring.backends.fail import Keyring as Nothing  # noqa: PLC0415 - the same
        except ImportError:
            raise ConfigError(
                "the keyring needs an extra: pip install greenroom[keyring]; or use FileStore()"
            ) from None
        self._keyring: Any = keyring.get_keyring()
        if isinstance(self._keyring, Nothing):
            raise ConfigError("this machine has no keyring that can be used: use FileStore()")
        self._service = service
        self._folder = Path(FileStore(folder, app=service).folder)

    def __repr__(self) -> str:
        return f"KeyringStore({self._service!r})"

    @property
    def name(self) -> Hashable:
        """The service name."""
        return ("keyring", self._service)

    async def get(self, key: str) -> Mapping[str, Any] | None:
        """The entry of a key, if there is one."""
        stored = await self._ask(self._keyring.get_password, self._service, key)
        return None if stored is None else parse_object(stored.encode())

    async def keys(self) -> Sequence[str]:
        """The keys of all entries, from an entry of their own, since keyrings cannot list entries."""
        return texts((await self.get(_NAMES_ENTRY) or {}).get("names"))

    async def put(self, key: str, entry: Mapping[str, Any] | None) -> None:
        """Store an entry; None deletes it."""
        await self._put(key, entry)
        async with self.lock(_NAMES_ENTRY):
            names = dict.fromkeys(await self.keys())
            if (key in names) == (entry is not None):
                return
            if entry is None:
                del names[key]
            else:
                names[key] = None
            await self._put(_NAMES_ENTRY, {"names": list(names)})

    async def _put(self, key: str, entry: Mapping[str, Any] | None) -> None:
        if entry is not None:
            await self._ask(self._keyring.set_password, self._service, key, encode(dict(entry)).decode())
        elif await self._ask(self._keyring.get_password, self._service, key) is not None:
            await self._ask(self._keyring.delete_password, self._service, key)

    def lock(self, key: str) -> AbstractAsyncContextManager[None]:
        """Lock a key across processes."""
        return name_lock(self._folder, key)

    async def _ask(self, function: Any, *arguments: str) -> Any:
        try:
            return await asyncio.to_thread(function, *arguments)
        except Exception as error:  # noqa: BLE001 - each keyring raises its own exceptions
            raise SignInError(
                "store", f"the keyring failed: {type(error).__name__}; unlock it, or use FileStore()"
            ) from None


def best_store(app: str = "greenroom") -> KeyringStore | FileStore:
    """The keyring if there is one, else an encrypted file."""
    try:
        return KeyringStore(app)
    except ConfigError:
        return FileStore(app=app)


# --- Locks on files, which exclude other processes of this machine. The kernel holds them, and releases those of a process that dies, so that no lock is
# stale. The lock file is empty, and is not deleted.

_SHORTEST_POLL: Final = 0.01
_LONGEST_POLL: Final = 0.1


TEMPORARY_ERRORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EINTR, errno.EAGAIN})
"""Errors that may pass."""
_READ_ONLY_ERRORS: Final = frozenset({errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT})


def advice(error: OSError) -> str:
    """The remedy for a file that cannot be created."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "raise ulimit -n, or have fewer files open"
    return "make room, or name another folder"


@contextlib.contextmanager
def _file_failures(what: str, advise: Callable[[OSError], str] | None = None) -> Generator[None]:
    """Raise an `OSError` as `SignInError`: `what` cannot be done."""
    try:
        yield
    except OSError as error:
        text = f"{what}: {error.strerror}{f'; {advise(error)}' if advise else ''}"
        raise SignInError("store", text, temporary=error.errno in TEMPORARY_ERRORS) from None
    except ConfigError as error:
        raise SignInError("store", str(error)) from None


@asynccontextmanager
async def file_lock(path: Path, seconds: float, *, readable: bool = False) -> AsyncGenerator[None]:
    """Hold a lock on a file. Raises `SignInError` when another program holds it for too long, and when the file cannot be created.

    With `readable`, it works on a read-only file system too, as with a login that is mounted read-only: an existing lock file is locked without being written, or
    else its folder.

    """
    with _file_failures(f"{path} cannot be locked", advice):
        descriptor = _open_lock_file(path, readable=readable)
    try:
        try:
            async with asyncio.timeout(seconds):
                await _acquire_lock(descriptor)
        except TimeoutError:
            raise SignInError(
                "lock",
                f"another program has been signing in for more than {seconds:g} s: finish there, or end it",
                temporary=True,
            ) from None
        yield
    finally:
        os.close(descriptor)  # closing releases the lock


def _open_lock_file(path: Path, *, readable: bool) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        if not readable or error.errno not in _READ_ONLY_ERRORS:
            raise
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)


async def _acquire_lock(descriptor: int) -> None:
    pause = _SHORTEST_POLL
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            await asyncio.sleep(
                pause
            )  # busy-poll with pauses: a blocking flock would need a thread, which cannot be cancelled
            pause = min(2 * pause, _LONGEST_POLL)
        else:
            return


# --- Encryption of the file, with a key in a file of its own or from the program.
# A reader of both files can read the tokens: the encryption protects copies of one of them, in backups and logs, and detects changes.


def seal_from_key(key: bytes | str) -> FileCipher:
    """The cipher for a key of 32 bytes in URL-safe base64. Raises `ConfigError`."""
    try:
        return file_cipher(key)
    except ValueError:
        raise ConfigError("the key for the token file must be 32 bytes in URL-safe base64") from None


def load_or_create_key(path: Path, make: Callable[[], bytes] = new_file_key) -> bytes:
    """The key in that file, created if missing: complete, readable by its owner alone, and only once if several programs start at a time."""
    try:
        return read_private(path).strip()
    except FileNotFoundError:
        pass
    with contextlib.suppress(FileExistsError):  # another program was faster: its key is used
        write_private(path, make(), replace=False)
    return read_private(path).strip()


def read_private(path: Path) -> bytes:
    """The content of a file. Raises `ConfigError` if other users can read it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise ConfigError(f"{path} is not a regular file: remove it, or name another folder")
        if mode & 0o077:
            raise ConfigError(
                f"{path.name} can be read by other users: find out who read it, run `chmod 600`, and sign in again"
            )
        return file.read()


# --- The record of a login: its tokens, where they came from, and their scopes. A value that a store can hold.

EXPIRY_MARGIN: Final = 60.0
"""Seconds before expiry from which a token is renewed if possible."""


@dataclass(frozen=True, slots=True)
class LoginRecord:
    """A login. Its repr contains no token."""

    issuer: str
    resource: str
    token_endpoint: str
    client_id: str
    access_token: str = field(repr=False)
    refresh_token: str | None = field(default=None, repr=False)
    expires_at: float | None = None
    obtained_at: float = 0.0
    scopes: tuple[str, ...] = ()
    """The requested and the granted scopes, which the next login requests again."""
    proof_key: ProofKey | None = None
    """The key that the tokens are bound to (DPoP); None for bearer tokens."""

    def is_expiring(self, now: float | None = None) -> bool:
        """Whether the token has expired or is about to."""
        if self.expires_at is None:
            return False
        lives = max(0.0, self.expires_at - self.obtained_at)
        return (time.time() if now is None else now) > self.expires_at - min(EXPIRY_MARGIN, lives / 2)

    def is_expired(self) -> bool:
        """Whether the token has expired."""
        return self.expires_at is not None and time.time() >= self.expires_at

    def with_tokens(self, tokens: TokenResponse) -> LoginRecord:
        """This login with the tokens of a refresh."""
        return replace(
            self,
            access_token=tokens.access_token,
            refresh_token=tokens.refresh_token or self.refresh_token,
            expires_at=tokens.expires_at,
            obtained_at=time.time(),
            proof_key=tokens.proof_key,
        )

    def as_dict(self) -> dict[str, Any]:
        """The record as a store entry. It contains the secrets."""
        entry = {each.name: getattr(self, each.name) for each in fields(self)}
        if self.proof_key is None:
            del entry["proof_key"]  # entries of bearer tokens are as they were before there were others
        else:
            entry["proof_key"] = self.proof_key.pem
        return entry

    @classmethod
    def read(cls, stored: Mapping[str, Any] | None) -> LoginRecord | None:
        """The record in a store entry; None for an incomplete one."""
        if stored is None:
            return None
        names = ("issuer", "resource", "token_endpoint", "access_token")
        needed = {name: found for name in names if (found := text(stored.get(name))) is not None}
        client_id, proof_key = stored.get("client_id"), ProofKey.read(stored.get("proof_key"))
        if len(needed) < len(names) or not isinstance(client_id, str):
            return None
        if "proof_key" in stored and proof_key is None:
            return None  # its tokens are worth nothing without the key
        return cls(
            **needed,
            client_id=client_id,
            refresh_token=text(stored.get("refresh_token")),
            expires_at=number(stored.get("expires_at")),
            obtained_at=number(stored.get("obtained_at")) or 0.0,
            scopes=texts(stored.get("scopes")),
            proof_key=proof_key,
        )
