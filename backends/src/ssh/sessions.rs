//! The sessions of programs whose workers are on machines that ssh reaches: their heads are
//! processes of this host.

use futures_util::future::ready;

use crate::cluster::SessionBackend;
use crate::local::{REFUSED, host_sessions};

const NAME: &str = "ssh";

/// The backend, as the command sees it.
pub(crate) static SESSIONS: SessionBackend = SessionBackend {
    refused: (REFUSED.0, "the program itself runs as a process of this host: leave it out"),
    ..SessionBackend::new(
        NAME,
        NAME,
        "Processes on machines that ssh reaches, with the program itself on this host",
        |_| Box::pin(ready(Ok(host_sessions(NAME)))),
    )
};
