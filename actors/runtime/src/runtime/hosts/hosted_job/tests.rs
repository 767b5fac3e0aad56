use super::*;

/// Makes a process that no host has.
pub(in crate::runtime::hosts) fn job(number: Number, meta: Meta) -> Arc<HostedJob> {
    ruled_job(number, meta, HostRule::Any)
}

/// Makes a process for which a rule chooses the host.
pub(in crate::runtime::hosts) fn ruled_job(
    number: Number,
    meta: Meta,
    rule: HostRule,
) -> Arc<HostedJob> {
    let spec = JobSpec { meta, ..JobSpec::new("worker") };
    let (id, parent) = (ProcessId::random(), ProcessId::random());
    let of = (HostGroup::new("pool", 2), rule);
    Arc::new(HostedJob::new(number, of, spec, false, (id, parent)))
}

#[test]
fn a_host_forgets_a_process_that_was_killed_before_its_start() {
    let (commands, _inbox) = tokio::sync::mpsc::unbounded_channel();
    let host = Arc::new(Host {
        number: 1,
        name: "host-1".into(),
        machine: None,
        of: None,
        state: Mutex::default(),
        commands,
    });
    let killed = job(1, Meta::new());
    host.add(Arc::clone(&killed));
    host.add(job(2, Meta::new()));
    killed.kill();
    assert!(killed.has_ended());
    assert_eq!(host.state.lock().processes.len(), 1);
    // Not even if it is killed while it waits for a host.
    host.add(killed);
    assert_eq!(host.state.lock().processes.len(), 1);
}
