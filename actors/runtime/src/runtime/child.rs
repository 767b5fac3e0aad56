//! A process that fiber started, from `init` to its end.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Buf;
use fiber_backends::{ListenAddress, Locality, backend, configured_interface};
use fiber_core::{
    Address, Config, LinkKind, ProcessId, SessionKey, block_on, local_ip_towards, variables,
};
use fiber_transport::{Connection, Pass, Role};
use fiber_values::{entry, kept_memory};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use tokio::sync::oneshot;

use super::backtraces::Backtraces;
use super::child_exit::ChildExit;
use super::child_main::{ParentMessage, StartRequest, StartedMain};
use super::parent_info::{ChildPlace, ParentInfo};
use super::protocol::ControlMessage;
use super::{Runtime, Started, bridge, names, telemetry, thread};
use crate::endpoint::{Endpoint, MAIN, MESH, connect_to, message_limit, send_heartbeats};
use crate::mesh::{MeshPeer, ProcessRef};
use crate::parts::Parts;

/// The interval of heartbeats until the child has its parent's configuration.
const EARLY_HEARTBEAT: Duration = Duration::from_secs(1);
/// Time for which the parent's host may leave data unconfirmed until then.
const EARLY_LINK_TIMEOUT: Duration = Duration::from_secs(30);

/// Works for the parent, if fiber has started this process: see [`init`](crate::init).
pub fn init() {
    let started: &Started = Parts::current().get();
    if started.may_start.load(Ordering::Acquire) {
        return;
    }
    fiber_core::adjust_inherited();
    if !variables::are_own() {
        started.may_start.store(true, Ordering::Release);
        return telemetry::is_head();
    }
    fiber_backends::run_if_helper();
    bridge::run_if_asked();
    names::run_if_asked();
    let variables = match fiber_core::secrets::take_variables(variables::PARENT, variables::KEY) {
        Some([None, None]) => None,
        Some([parent, key]) => Some((parent.unwrap_or_default(), key.unwrap_or_default())),
        // The parent explains this exit; a line that this process prints would repeat it.
        None if std::env::var_os(variables::PARENT).is_some() => quit(ChildExit::TooLate),
        None => None,
    };
    started.may_start.store(true, Ordering::Release);
    kept_memory::keep_large_blocks();
    let Some((parent, key)) = variables else { return telemetry::is_head() };
    if tokio::runtime::Handle::try_current().is_ok() {
        // An async task of this process could not run in a runtime of its own.
        quit(ChildExit::TooLate);
    }
    let info = parent.to_str().and_then(|text| text.parse::<ParentInfo>().ok());
    let ticket =
        fiber_core::secrets::read_secret(key).and_then(|text| text.parse::<SessionKey>().ok());
    fiber_core::secrets::close_stdin();
    match (info, ticket) {
        (Some(info), Some(ticket)) => run(info, ticket),
        _ => fail("FIBER_PARENT and FIBER_KEY are set, but not by fiber: unset them"),
    }
}

/// Works for the parent, and exits.
fn run(info: ParentInfo, ticket: SessionKey) -> ! {
    if let Some(parent) = info.parent_pid {
        die_with_parent(parent);
    }
    name_process();
    lower_soft_cpu_limit();
    fiber_core::leave_terminal();
    entry::prepare().unwrap_or_else(|error| fail(&error.to_string()));
    let parts = Parts::current();
    let thread = thread::start(parts).unwrap_or_else(|error| fail(&error.to_string()));
    let (sender, main) = oneshot::channel();
    let own_thread = thread.clone();
    thread.arbiter.spawn_fn(move || {
        fiber_core::spawn_local(async move {
            let joined = join(&info, ticket).await.unwrap_or_else(|problem| match problem {
                Some(problem) => fail(&problem),
                None => quit(ChildExit::NotStarted),
            });
            let config = &joined.config;
            let backend = backend(config).unwrap_or_else(|error| fail(&error.to_string()));
            telemetry::send_to_parent(&joined.connection.link, message_limit(config));
            config.clone().inherit();
            let configured = configured_interface(config);
            let configured = configured.unwrap_or_else(|error| fail(&error.to_string()));
            let (listen_on, interface) = listen_address(&info, configured);
            let endpoint =
                Endpoint::new(parts, info.id, (**config).clone(), joined.key.clone(), own_thread);
            let head = Some(joined.head.clone());
            let runtime = Runtime::new(endpoint, backend, listen_on, Some(&info), interface, head);
            let work = joined.begin(runtime, info.parent).unwrap_or_else(|problem| fail(&problem));
            let _ = sender.send(work.run);
            quit(receive(runtime, work.connection, work.receive, Some(work.parent)).await)
        });
    });
    match block_on(async { Ok(main.await) }) {
        Ok(Ok(main)) => {
            let code = main();
            fiber_core::at_exit::flush_output();
            std::process::exit(code)
        }
        _ => fail("fiber's thread ended"),
    }
}

/// A child that has joined its parent's session, and knows its work.
pub(super) struct Joined {
    connection: Connection,
    /// The session's.
    pub(super) key: SessionKey,
    pub(super) config: Box<Config>,
    pub(super) head: ProcessRef,
    request: StartRequest,
}

/// The work of a child that has been prepared.
pub(super) struct Work {
    pub(super) connection: Connection,
    pub(super) receive: Box<dyn FnMut(ParentMessage)>,
    pub(super) run: Box<dyn FnOnce() -> i32 + Send>,
    pub(super) parent: MeshPeer,
}

/// Joins the session of the parent, by the ticket that came with this process's job.
///
/// # Errors
/// Why the child can't work; `None` if its parent does not wait for it any more, or has closed the
/// link.
pub(super) async fn join(info: &ParentInfo, ticket: SessionKey) -> Result<Joined, Option<String>> {
    let address = info.address.to_string();
    let pass = Pass::ticket(info.id, ticket);
    let connected = connect_to(&address, &pass, info.id, info.listener, Role::Child).await;
    let unreachable = |problem| format!("the parent can't be reached at {address}: {problem}");
    let (mut connection, key) = connected.map_err(|problem| problem.map(unreachable))?;
    let key = key.ok_or_else(|| format!("the parent at {address} gave no key of its session"))?;
    // Until the parent sets the interval of heartbeats, only this limit detects that its host is
    // gone.
    connection.link.set_peer_timeout(EARLY_LINK_TIMEOUT);
    let link = Arc::clone(&connection.link);
    let early = fiber_core::spawn_local(send_heartbeats(link, EARLY_HEARTBEAT, || {
        let (usage, below, events) = (None, None, None);
        ControlMessage::Heartbeat { usage, below, events }.message()
    }));
    let first = first_message(&mut connection).await;
    early.abort();
    let Some(ControlMessage::Start { config, head, request }) = first else { return Err(None) };
    connection.incoming.set_limit(message_limit(&config));
    connection.link.set_peer_timeout(config.heartbeat_timeout);
    Ok(Joined { connection, key, config, head, request })
}

impl Joined {
    /// Prepares the work for the process `parent`.
    ///
    /// # Errors
    /// Why the child can't work.
    pub(super) fn begin(
        self,
        runtime: &'static Runtime,
        parent: ProcessId,
    ) -> Result<Work, String> {
        let Joined { connection, config, request, .. } = self;
        // Before the work starts: from now on, the parent kills a silent child.
        let link = Arc::clone(&connection.link);
        fiber_core::spawn_local(send_heartbeats(link, config.heartbeat, || {
            telemetry::flush();
            runtime.heartbeat().message()
        }));
        runtime.part::<Backtraces>().tell(&connection.link);
        let parent = runtime.mesh().add_link(parent, &connection.link);
        let started = request.start(runtime, Arc::clone(&connection.link));
        let StartedMain { receive, run } = started.map_err(|error| error.to_string())?;
        Ok(Work { connection, receive, run, parent })
    }
}

/// Returns where a child listens, if its backend does not say it, and the interface by which other
/// machines reach what runs in its host, if they do.
fn listen_address(
    info: &ParentInfo,
    configured: Option<IpAddr>,
) -> (Option<ListenAddress>, Option<IpAddr>) {
    let on = |link, bind, locality| ListenAddress { link, bind, advertised: None, locality };
    match info.place {
        ChildPlace::Alone if info.parent_pid.is_some() => (None, None),
        ChildPlace::Alone => {
            let bind = interface_towards(&info.address).unwrap_or(Ipv4Addr::LOCALHOST.into());
            (Some(on(LinkKind::remote(), bind, Locality::Remote)), None)
        }
        // The processes in it connect to a host, and hosts that want its values.
        ChildPlace::Host => {
            let interface = configured.or_else(|| interface_towards(&info.address));
            let own = match interface {
                Some(interface) => on(LinkKind::remote(), interface, Locality::Child),
                None => on(LinkKind::Unix, Ipv4Addr::LOCALHOST.into(), Locality::Child),
            };
            (Some(own), interface)
        }
        ChildPlace::InHost(interface) => {
            (Some(on(LinkKind::remote(), interface, Locality::Child)), Some(interface))
        }
    }
}

/// Returns the interface by which this machine reaches the parent; `None` if the parent is on it.
fn interface_towards(parent: &Address) -> Option<IpAddr> {
    local_ip_towards(parent.far()?.ip()?).ok()
}

async fn first_message(connection: &mut Connection) -> Option<ControlMessage> {
    // The default limit, for peers before their handshake, is too small for arguments.
    connection.incoming.set_limit(i32::MAX as usize);
    ControlMessage::read(&connection.next().await?.ok()?)
}

/// Receives messages of the parent until the child has to end. Returns why. `parent` is there if
/// the child has a mesh of its own.
pub(super) async fn receive(
    runtime: &'static Runtime,
    mut connection: Connection,
    mut receive: Box<dyn FnMut(ParentMessage)>,
    mut parent: Option<MeshPeer>,
) -> ChildExit {
    while let Some(Ok(mut message)) = connection.next().await {
        match message.first() {
            Some(&MAIN) => {
                message.bytes.advance(1);
                receive(ParentMessage::Data(message));
            }
            Some(&MESH) => {
                if let Some(parent) = &mut parent {
                    parent.receive(message);
                }
            }
            _ => match ControlMessage::read(&message) {
                Some(ControlMessage::Shutdown) => receive(ParentMessage::Shutdown),
                Some(ControlMessage::Kill) => return ChildExit::Killed,
                Some(ControlMessage::Inspect { number, request }) => {
                    let link = Arc::clone(&connection.link);
                    fiber_core::spawn_local(async move {
                        let answer = runtime.inspect(request).await;
                        let _ = link.send(ControlMessage::Inspected { number, answer }.message());
                    });
                }
                _ => {}
            },
        }
    }
    // If the parent is alive, it must not take this for a normal end.
    ChildExit::LinkLost
}

/// Lets the kernel kill this process when its parent dies, even if this process hangs or is
/// stopped.
fn die_with_parent(parent: i32) {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    // The parent may have died before.
    let actual = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    if actual != parent {
        exit_with(0)
    }
}

/// Sets the soft limit of CPU time below the hard one, which most often is the same. At the soft
/// limit the kernel sends SIGXCPU, which names the reason, at the hard one SIGKILL.
fn lower_soft_cpu_limit() {
    let limit = getrlimit(Resource::Cpu);
    if let Some(seconds @ 2..) = limit.maximum
        && limit.current == limit.maximum
    {
        let _ = setrlimit(Resource::Cpu, Rlimit { current: Some(seconds - 1), ..limit });
    }
}

/// Sets the name that process lists show: without it, a process started through `/proc/self/exe`
/// would be `exe`.
fn name_process() {
    let Ok(path) = std::env::current_exe() else { return };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name: String = name.trim_end_matches(" (deleted)").chars().take(15).collect();
    if let Ok(name) = std::ffi::CString::new(name) {
        let _ = rustix::thread::set_name(&name);
    }
}

fn fail(problem: &str) -> ! {
    eprintln!("fiber: this process can't work for its parent: {problem}");
    quit(ChildExit::NotStarted)
}

fn quit(exit: ChildExit) -> ! {
    exit_with(exit.code())
}

/// Ends this process and its children at once. The program's exit handlers don't run, as other
/// threads still do.
fn exit_with(code: i32) -> ! {
    if let Some(runtime) = Runtime::current() {
        runtime.kill_children();
    }
    signal_hook::low_level::exit(code)
}
