//! A proxy to the API server that can freeze connections: they stay open, but carry no more data.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use fiber_test_support::kubeconfig;
use fiber_test_support::kubectl;

pub(crate) struct Proxy {
    port: u16,
    /// Incremented by each freeze. Connections from before are frozen.
    generation: Arc<AtomicU32>,
}

impl Proxy {
    pub(crate) fn start() -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it has one").port();
        let generation = Arc::new(AtomicU32::new(0));
        let current = Arc::clone(&generation);
        let (host, server_port) = kubectl::server();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect((host.as_str(), server_port)) else { continue };
                let begun = current.load(Ordering::SeqCst);
                let frozen = || {
                    let current = Arc::clone(&current);
                    move || current.load(Ordering::SeqCst) != begun
                };
                let clone =
                    |stream: &TcpStream| stream.try_clone().expect("there are descriptors left");
                let (back_from, back_to) = (clone(&server), clone(&client));
                let (there, back) = (frozen(), frozen());
                std::thread::spawn(move || pass(client, server, there));
                std::thread::spawn(move || pass(back_from, back_to, back));
            }
        });
        Proxy { port, generation }
    }

    /// Freezes all current connections forever.
    pub(crate) fn freeze(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the kubeconfig of the tests, changed to use this proxy.
    pub(crate) fn kubeconfig(&self, directory: &Path) -> PathBuf {
        kubeconfig::changed(directory, |config| {
            let cluster = &mut config["clusters"][0]["cluster"];
            cluster["server"] = format!("https://127.0.0.1:{}", self.port).into();
            cluster["tls-server-name"] = kubectl::server().0.into();
        })
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, frozen: impl Fn() -> bool) {
    let mut buffer = [0; 16 << 10];
    while let Ok(length) = from.read(&mut buffer) {
        if frozen() {
            // Neither side learns of the other's end, or gets an answer.
            fiber_test_support::hang()
        }
        if length == 0 || to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
