//! A registry that refuses all requests, and counts them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

const REFUSAL: &str = r#"{"errors":[{"code":"DENIED","message":"the test refuses"}]}"#;

pub(super) struct Registry {
    pub(super) address: String,
    requests: Arc<AtomicUsize>,
}

impl Registry {
    /// Starts it on this host, where Docker uses it without a certificate.
    pub(super) async fn refusing() -> Registry {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it has one").to_string();
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        tokio::task::spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::task::spawn_local(refuse(stream, Arc::clone(&counted)));
            }
        });
        Registry { address, requests }
    }

    /// Returns the number of requests since the last call.
    pub(super) fn requests(&self) -> usize {
        self.requests.swap(0, Ordering::SeqCst)
    }
}

/// Refuses the request of a connection. Closes connections that use TLS.
async fn refuse(stream: TcpStream, requests: Arc<AtomicUsize>) {
    let mut stream = BufReader::new(stream);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_until(b'\n', &mut head).await {
            Ok(read) if read > 0 && head.is_ascii() => {}
            _ => return,
        }
    }
    requests.fetch_add(1, Ordering::SeqCst);
    let (length, kind) = (
        REFUSAL.len(),
        "Content-Type: application/json\r\nDocker-Distribution-Api-Version: registry/2.0",
    );
    let answer = format!(
        "HTTP/1.1 403 Forbidden\r\n{kind}\r\nContent-Length: {length}\r\nConnection: \
         close\r\n\r\n{REFUSAL}"
    );
    // A client may close the connection early.
    let _ = stream.write_all(answer.as_bytes()).await;
}
