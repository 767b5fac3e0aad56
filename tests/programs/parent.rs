//! A parent that accepts the connection of a child and gives it no work.

use std::future::poll_fn;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::mpsc;

use fiber_core::{LinkKind, ProcessId, SessionKey};
use fiber_test_support::program::Setup;
use fiber_test_support::wait::LONG;
use fiber_transport::{ListenAt, accept_peer, listen};
use tokio::sync::oneshot;
use tokio::task::LocalSet;

/// A parent, from its start until its [end](IdleParent::end).
pub(crate) struct IdleParent {
    id: ProcessId,
    key: SessionKey,
    address: String,
    connected: mpsc::Receiver<()>,
    end: oneshot::Sender<()>,
}

impl IdleParent {
    pub(crate) fn start() -> IdleParent {
        let (id, key) = (ProcessId::random(), SessionKey::random());
        let (started, address) = mpsc::channel();
        let (sender, connected) = mpsc::channel();
        let (end, ended) = oneshot::channel();
        let own_key = key.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            LocalSet::new().block_on(&runtime.expect("there is room for it"), async move {
                let at = ListenAt::new(Ipv4Addr::LOCALHOST);
                let mut listener = listen(LinkKind::Nng, &own_key, &at).expect("a port is free");
                let _ = started.send(listener.address());
                let connection = poll_fn(|context| listener.poll_accept(context)).await;
                let peer =
                    accept_peer(connection.expect("it connects"), &own_key, id, |_| true).await;
                let _peer = peer.map_err(|(error, _)| error).expect("it is the child");
                let _ = sender.send(());
                let _ = ended.await;
            });
        });
        let address = address.recv_timeout(LONG).expect("it listens");
        IdleParent { id, key, address, connected, end }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Makes a program its child on another host, which connects at `address`.
    pub(crate) fn child(&self, program: Setup, address: &str) -> Setup {
        let (child, own) = (ProcessId::random(), self.id);
        let info = format!("{child},{own},elsewhere,{own},alone,{address}");
        program.env("FIBER_PARENT", info).env("FIBER_KEY", self.key.ticket(child).reveal())
    }

    /// Writes its address to a file.
    pub(crate) fn write_address(&self, file: &Path) {
        std::fs::write(file, &self.address).expect("there is room");
    }

    /// Waits until the handshake with the child is complete.
    pub(crate) fn wait_for_child(&self) {
        self.connected.recv_timeout(LONG).expect("the child connects");
    }

    /// Closes the connection.
    pub(crate) fn end(self) {
        let _ = self.end.send(());
    }
}
