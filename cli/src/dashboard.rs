//! `fiber dashboard`: a web page that shows what sessions do.
//!
//! - `access`: only browsers with the token of the link see anything.
//! - `answers`: the pages, and the statistics behind them.
//! - `connections`: how many there are at most.
//! - `view`: a session's statistics in the form that the page reads.

mod access;
mod answers;
mod connections;
mod view;

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::pin::pin;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use futures_util::future::select;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

use self::access::Access;
use self::answers::Dashboard;
use self::connections::Connections;
use crate::args::ClusterArgs;
use crate::inspect::sessions::Sessions;

/// Time limit for a request's header.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// `fiber dashboard`.
pub(crate) async fn dashboard(
    cluster: &ClusterArgs,
    port: u16,
    name: Option<&str>,
) -> anyhow::Result<ExitCode> {
    let mut sessions = Sessions::connect(cluster).await?;
    if let Some(name) = name {
        let observed = sessions.look().await?;
        let head = sessions.find(&observed, name).await?.head;
        sessions.limit_to(&head.name);
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.with_context(|| {
        format!("port {port} of 127.0.0.1 can't be used: leave out `--port`, or choose another one")
    })?;
    let access = Access::new(listener.local_addr()?.port());
    say!("{}", access.link());
    tell!("Open this link in a browser on this host. Ctrl-C ends the dashboard.");
    let dashboard = Rc::new(Dashboard::new(access, sessions));
    let connections = Rc::new(Connections::default());
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Some((place, gives_way)) = connections.enter() else { continue };
        let place = Rc::new(place);
        let dashboard = Rc::clone(&dashboard);
        let answer = service_fn(move |request| {
            let (dashboard, place) = (Rc::clone(&dashboard), Rc::clone(&place));
            async move { Ok::<_, Infallible>(dashboard.answer(&request, &place).await) }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .serve_connection(TokioIo::new(stream), answer);
        tokio::task::spawn_local(async move {
            // A browser that goes away is no failure.
            let _ = select(pin!(connection), gives_way).await;
        });
    }
}
