//! A job for tests.

use fiber_backends::JobSpec;

/// Returns the job of a host on a pilot, with a secret.
pub(crate) fn sample_spec() -> JobSpec {
    JobSpec {
        arguments: vec!["a b".into()],
        secrets: vec![("FIBER_KEY", "hush".into())],
        log_dir: "logs".into(),
        machine: Some("pilot-1".into()),
        ..JobSpec::new("host-1")
    }
}
