"""Listening sockets shared by several processes: handed over to a process with the ticket, and to no other."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
import struct
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import is_alive, kill, start, stop, wait_down, whereis
from greenroom.supervision.supervisors.supervisor import Supervisor
from greenroom.transports import listening_sockets
from greenroom.transports.http_listener import BalancedAcceptor
from greenroom.transports.listening_sockets import (
    AcceptShares,
    Binding,
    CannotListen,
    SocketHandover,
    SocketHandoverFailed,
    SocketTicket,
    create_shares_file,
    handover_child,
    new_socket_ticket,
    receive_sockets,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from greenroom.supervision import Ref

pytestmark = pytest.mark.greenroom(clock="real")
log = logging.getLogger("greenroom.http")


@pytest.fixture(name="page")
def _page() -> Generator[int]:
    page = create_shares_file(2)
    yield page
    os.close(page)


async def opened(page: int) -> tuple[Binding, SocketTicket, Ref[SocketHandover]]:
    binding, ticket = Binding("127.0.0.1", 0), new_socket_ticket()
    return binding, ticket, await start(SocketHandover, binding, ticket, page)


async def sockets_for(ticket: SocketTicket, timeout: float = 5.0) -> list[socket.socket]:
    handed = await receive_sockets(ticket, timeout)
    os.close(handed.page)
    return handed.sockets


async def test_shut_down_sockets_listen_in_no_process_and_are_not_handed_over_again(
    page: int, caplog: pytest.LogCaptureFixture
) -> None:
    binding, ticket, _ = await opened(page)
    shared = Binding.of(await sockets_for(ticket), AcceptShares(page, 0))
    acceptor = BalancedAcceptor(shared.copies(), asyncio.Protocol, log, shared.shares, int)  # type: ignore[arg-type]
    here = binding.addresses[0]
    binding.shut_down()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*here)
    async with asyncio.timeout(30):
        while acceptor.sockets:  # noqa: ASYNC110 - the kernel wakes its reader, and tells the test nothing
            await asyncio.sleep(0)
    assert not caplog.records
    with pytest.raises(CannotListen, match="were shut down"):
        binding.copies()
    with pytest.raises(SocketHandoverFailed, match="the listening sockets"):
        await sockets_for(ticket)
    shared.close()


async def test_a_process_with_the_ticket_gets_sockets_that_accept_on_the_same_port(page: int) -> None:
    binding, ticket, handover = await opened(page)
    found = await sockets_for(ticket)
    assert [each.getsockname() for each in found] == list(binding.addresses)
    assert not found[0].get_inheritable()
    shared = Binding.of(found, AcceptShares(page, 0))
    assert shared.addresses == binding.addresses
    assert shared.port == binding.port
    shared.close()
    with pytest.raises(CannotListen, match="another process's"):
        shared.copies()
    with socket.create_connection(("127.0.0.1", binding.port), timeout=5):
        pass  # the process that handed it over still has it
    await stop(handover)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", binding.port), timeout=5).close()


async def test_a_wrong_ticket_gets_nothing(page: int) -> None:
    binding, ticket, handover = await opened(page)
    for secret in (b"x" * 32, ticket.secret[:-1] + b"\0", b"GET / HTTP/1.1\r\n\r\n" + b"x" * 32):
        with pytest.raises(SocketHandoverFailed):
            await sockets_for(ticket._replace(secret=secret))
    with pytest.raises(SocketHandoverFailed, match="within"):
        await sockets_for(ticket._replace(secret=ticket.secret[:-1]), timeout=0.05)
    assert is_alive(handover)
    assert "secret" not in repr(ticket)
    assert ticket.secret.hex() not in repr(ticket)
    (found,) = await sockets_for(ticket)
    found.close()
    await stop(handover)
    with pytest.raises(SocketHandoverFailed):
        await sockets_for(ticket, timeout=0.1)
    assert not binding._sockets


async def test_many_silent_clients_do_not_block_the_handover(page: int) -> None:
    _, ticket, handover = await opened(page)
    loop = asyncio.get_running_loop()
    silent: list[socket.socket] = []
    for _ in range(80):
        each = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        each.setblocking(False)  # noqa: FBT003 - its only argument
        await loop.sock_connect(each, f"\0{ticket.address[1:]}")
        silent.append(each)
    with pytest.raises(SocketHandoverFailed):
        await sockets_for(ticket, timeout=0.5)
    for each in silent:
        each.close()
    while True:
        try:
            (found,) = await sockets_for(ticket, timeout=0.5)
        except SocketHandoverFailed:
            continue  # it has not noticed yet that they are gone
        break
    found.close()
    await stop(handover)


async def test_an_address_that_cannot_be_bound_is_reported_and_leaves_nothing_open(page: int, tmp_path: Path) -> None:
    binding = Binding("127.0.0.1", 0)
    binding.open()
    before = lowest_free()
    with pytest.raises(Exception, match="No such file or directory"):
        await start(SocketHandover, binding, SocketTicket(str(tmp_path / "missing" / "handover"), b"x" * 32), page)
    assert lowest_free() == before
    binding.close()
    started = await start(Supervisor, [])  # the node has removed it, and goes on
    await stop(started)


def lowest_free() -> int:
    found = os.dup(0)
    os.close(found)
    return found


async def test_a_restarted_handover_has_the_same_address_and_the_port_was_never_free(page: int) -> None:
    binding, ticket = Binding("127.0.0.1", 0), new_socket_ticket()
    await start(Supervisor, [handover_child(binding, ticket, page).but(name="handover")])
    before = whereis("handover")
    assert before is not None
    kill(before)
    await wait_down(before)
    (found,) = await sockets_for(ticket)
    assert found.getsockname()[1] == binding.port
    found.close()


async def test_connections_queued_for_a_dead_process_are_accepted_by_another(page: int) -> None:
    binding, ticket, handover = await opened(page)
    (one,), (other,) = await sockets_for(ticket), await sockets_for(ticket)
    waiting = socket.create_connection(("127.0.0.1", binding.port), timeout=5)
    one.close()  # as its process dies
    met: asyncio.Future[asyncio.BaseTransport] = asyncio.get_running_loop().create_future()

    class Greeter(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            met.set_result(transport)

    acceptor = BalancedAcceptor([other], Greeter, log, AcceptShares(page, 0), lambda: 0)
    transport = await asyncio.wait_for(met, 5)
    assert transport.get_extra_info("peername") == waiting.getsockname()
    transport.close()
    acceptor.close()
    acceptor.close()
    waiting.close()
    await stop(handover)


async def test_a_burst_of_connections_is_shared_among_processes(page: int) -> None:
    binding, ticket, handover = await opened(page)
    counts = [0, 0]
    done = asyncio.Event()

    def greeter(who: int) -> type[asyncio.Protocol]:
        class Greeter(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                counts[who] += 1
                transport.close()
                if sum(counts) == 40:
                    done.set()

        return Greeter

    sockets = [(await sockets_for(ticket))[0] for _ in (0, 1)]
    burst = [socket.create_connection(("127.0.0.1", binding.port), timeout=5) for _ in range(40)]
    acceptors = [
        BalancedAcceptor([sockets[who]], greeter(who), log, AcceptShares(page, who), lambda: 0) for who in (0, 1)
    ]
    await asyncio.wait_for(done.wait(), 5)
    assert counts == [20, 20]
    for acceptor in acceptors:
        acceptor.close()
    for each in burst:
        each.close()
    await stop(handover)


async def test_a_handover_without_descriptors_pauses_and_continues(
    page: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("greenroom.supervision.acceptor.PAUSE", 0.01)
    binding, ticket, handover = await opened(page)
    (found,) = await sockets_for(ticket)
    met = asyncio.Event()

    class Tired:
        """A socket that fails to accept, once."""

        tired = True

        def fileno(self) -> int:
            return found.fileno()

        def getsockname(self) -> object:
            return found.getsockname()

        def accept(self) -> object:
            if self.tired:
                self.tired = False
                raise OSError(24, "Too many open files")
            return found.accept()

        def close(self) -> None:
            found.close()

    class Greeter(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            transport.close()
            met.set()

    tired: Any = Tired()
    acceptor = BalancedAcceptor([tired], Greeter, log, AcceptShares(page, 0), lambda: 0)
    with socket.create_connection(("127.0.0.1", binding.port), timeout=5):
        await asyncio.wait_for(met.wait(), 5)
    assert "Too many open files" in caplog.text
    acceptor.close()
    await stop(handover)


async def connected_client(handover: SocketTicket) -> socket.socket:
    """A connected client that has sent nothing yet."""
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    found.setblocking(False)  # noqa: FBT003 - its only argument
    await asyncio.get_running_loop().sock_connect(found, f"\0{handover.address[1:]}")
    return found


async def gone(guest: socket.socket) -> bool:
    """Wait for the connection to be closed; returns whether it was."""
    try:
        return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(guest, 1), 25) == b""
    except ConnectionResetError:
        return True  # its input was still unread


async def test_a_client_with_half_a_ticket_is_closed_after_the_timeout(
    page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greenroom.transports.listening_sockets._HANDOVER_TIMEOUT", 0.05)
    _, ticket, handover = await opened(page)
    with await connected_client(ticket) as guest:
        guest.send(ticket.secret[:7])
        assert await gone(guest)
    with await connected_client(ticket) as guest:
        assert await gone(guest)
    await stop(handover)


async def test_a_ticket_may_arrive_in_pieces(page: int) -> None:
    binding, ticket, handover = await opened(page)
    with await connected_client(ticket) as guest:
        guest.send(ticket.secret[:7])
        (found,) = await sockets_for(ticket)  # other clients are served meanwhile
        found.close()
        guest.send(ticket.secret[7:])
        while True:
            try:
                said, numbers, _, _ = socket.recv_fds(guest, 1, 16)
            except BlockingIOError:
                await asyncio.sleep(0.01)
                continue
            break
        assert said == bytes((2,))
        for each in numbers:
            os.close(each)
    assert binding.port
    await stop(handover)


async def test_waiting_clients_are_closed_with_the_handover(page: int) -> None:
    _, ticket, handover = await opened(page)
    with await connected_client(ticket) as guest:
        (found,) = await sockets_for(ticket)  # so the other one was accepted before
        found.close()
        await stop(handover)
        assert await gone(guest)


async def test_another_users_process_gets_nothing(page: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _, ticket, handover = await opened(page)

    def foreign_credentials(*_: object) -> tuple[int, int, int]:
        """The peer credentials, as the kernel reports them."""
        return 1, os.geteuid() + 1, 1

    with monkeypatch.context() as patch:
        patch.setattr(
            listening_sockets, "struct", SimpleNamespace(unpack=foreign_credentials, calcsize=struct.calcsize)
        )
        with await connected_client(ticket) as guest:
            guest.send(ticket.secret)
            assert await gone(guest)
    (found,) = await sockets_for(ticket)
    found.close()
    await stop(handover)


def descriptors() -> int:
    """How many are open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def test_a_handover_of_fewer_sockets_than_announced_is_refused(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    address = str(tmp_path / "handover")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as handover, socket.socket() as page:
        handover.bind(address)
        handover.listen()
        handover.setblocking(False)  # noqa: FBT003 - its only argument
        before = descriptors()
        for said, given in ((b"\x03", [page.fileno()] * 2), (b"\x01", [page.fileno()]), (b"\x02", []), (b"", [])):
            asking = asyncio.create_task(receive_sockets(SocketTicket(address, b"x" * 32)))
            guest, _ = await loop.sock_accept(handover)
            with guest:
                assert await loop.sock_recv(guest, 64) == b"x" * 32
                if given:
                    socket.send_fds(guest, [said], given)
                elif said:
                    guest.send(said)
            with pytest.raises(SocketHandoverFailed, match="were refused"):
                await asking
        assert descriptors() == before


@pytest.fixture
def short_path() -> Generator[Path]:
    """A directory whose path leaves room for a socket's, which has 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="gr-") as folder:
        yield Path(folder)


async def test_without_abstract_addresses_the_socket_is_a_private_file(
    page: int, monkeypatch: pytest.MonkeyPatch, short_path: Path
) -> None:
    monkeypatch.setattr("greenroom.transports.listening_sockets.sys.platform", "darwin")
    monkeypatch.setattr("greenroom.transports.listening_sockets.tempfile.gettempdir", lambda: str(short_path))
    ticket = new_socket_ticket()
    monkeypatch.undo()
    where = Path(ticket.address)
    assert where.parent == short_path
    with pytest.raises(SocketHandoverFailed, match="within"):
        await sockets_for(ticket, timeout=0.1)
    monkeypatch.delattr(socket, "SO_PEERCRED", raising=False)
    where.write_text("what a predecessor has left")  # noqa: ASYNC240 - a small one
    binding = Binding("127.0.0.1", 0)
    handover = await start(SocketHandover, binding, ticket, page)
    assert stat.S_IMODE(where.stat().st_mode) == 0o600  # noqa: ASYNC240 - as above
    (found,) = await sockets_for(ticket)
    found.close()
    kill(handover)
    await wait_down(handover)
    assert not where.exists()  # noqa: ASYNC240 - as above
    binding.close()


async def test_a_ticket_for_no_process_is_reported_as_that(tmp_path: Path) -> None:
    with pytest.raises(SocketHandoverFailed, match="could not be received"):
        await sockets_for(SocketTicket(str(tmp_path / ("x" * 200)), b"x" * 32))


async def test_a_paused_acceptor_can_be_closed_and_a_vanished_client_is_ignored(
    page: int,
) -> None:
    _, ticket, handover = await opened(page)
    (found,) = await sockets_for(ticket)
    tried = asyncio.Event()

    class Odd:
        """A socket whose first client vanishes before it is accepted, and then there are no descriptors left."""

        tries = 0

        def fileno(self) -> int:
            return found.fileno()

        def getsockname(self) -> object:
            return found.getsockname()

        def accept(self) -> object:
            self.tries += 1
            if self.tries == 1:
                raise ConnectionAbortedError
            tried.set()
            raise OSError(24, "Too many open files")

        def close(self) -> None:
            found.close()

    odd: Any = Odd()
    acceptor = BalancedAcceptor([odd], asyncio.Protocol, log, AcceptShares(page, 0), lambda: 0)
    with socket.create_connection(found.getsockname(), timeout=5):
        await asyncio.wait_for(tried.wait(), 25)
        acceptor.close()
        assert found.fileno() == -1
    await stop(handover)
