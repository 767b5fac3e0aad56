//! A job for tests.

use fiber_backends::JobSpec;
use fiber_core::{Meta, OutputMode};

/// Returns the job of a host on a pilot, with a secret.
pub(crate) fn sample_spec() -> JobSpec {
    JobSpec {
        name: "host-1".into(),
        arguments: vec!["a b".into()],
        parent: None,
        environment: Vec::new(),
        secrets: vec![("FIBER_KEY", "hush".into())],
        restarts: 0,
        meta: Meta::new(),
        output: OutputMode::Null.into(),
        log_dir: "logs".into(),
        machine: Some("pilot-1".into()),
        processes: 1,
    }
}
