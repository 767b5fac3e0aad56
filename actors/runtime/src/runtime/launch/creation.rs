//! The creation of a job.

use std::sync::Arc;
use std::time::Duration;

use fiber_backends::{Job, JobSpec};
use fiber_core::{Error, Exit, Result, deadline_after};
use tokio::time::{Instant, sleep};

use super::failure::not_started;
use crate::runtime::Runtime;

/// The first pause before a retry; each further one is twice as long, up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// Creates a job. With `retry`, tries for `start_timeout`: a supervisor gives up after a few
/// failures, and a shortage may soon be over.
///
/// # Errors
/// The exit of a process that could not be started.
pub(in crate::runtime) async fn create(
    runtime: &'static Runtime,
    spec: JobSpec,
    retry: bool,
) -> Result<Arc<dyn Job>, Exit> {
    let created = if retry {
        create_with_retries(runtime, spec).await
    } else {
        runtime.backend.create(spec).await
    };
    created.map_err(|error| match error {
        Error::Start { reason, .. } => Exit::new(reason, Vec::new()),
        other => not_started(other.to_string()),
    })
}

async fn create_with_retries(runtime: &'static Runtime, spec: JobSpec) -> Result<Arc<dyn Job>> {
    let deadline = Instant::from(deadline_after(runtime.endpoint.config.start_timeout));
    let mut pause = FIRST_PAUSE;
    loop {
        let error = match runtime.backend.create(spec.clone()).await {
            Err(error) if Instant::now() + pause < deadline && !runtime.is_exiting() => error,
            created => return created,
        };
        if pause == FIRST_PAUSE {
            tracing::warn!("{error}; trying again");
        } else {
            tracing::debug!("{error}; trying again");
        }
        sleep(pause).await;
        pause = (2 * pause).min(MAX_PAUSE);
    }
}
