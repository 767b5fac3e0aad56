//! This process as a child: it was started by another node to work for it.

use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Buf;
use fiber_backends::{ListenAddress, Locality, backend};
use fiber_core::{LinkKind, ProcessId, SessionKey, entry};
use fiber_transport::{Connection, Role, local_ip_towards};
use rustix::process::Signal;

use super::launch::{ControlMessage, REMOTE, control};
use super::root::ParentMessage;
use super::{CURRENT, INITIALISED, Runtime, start_thread};
use crate::endpoint::{Endpoint, MAIN, MESH, connect_to, message_limit, send_heartbeats};
use crate::mesh::MeshPeer;

/// The exit code of a child that could not begin its work.
pub(super) const EXIT_NOT_STARTED: i32 = 70;
/// The exit code of a child in which a thread or an async runtime was started before
/// `fiber::init()`.
const EXIT_TOO_LATE: i32 = 71;
/// The exit code of a child whose link to its parent was closed while it worked.
pub(super) const EXIT_LINK_LOST: i32 = 72;

/// What kept a child that exited with this code from its work, if fiber gives the code a meaning.
pub(super) fn obstacle(code: i32) -> Option<&'static str> {
    (code == EXIT_TOO_LATE).then_some(
        "`fiber::init()` must come before anything that starts a thread: make it the first line of `main`. `#[tokio::main]` and \
         `#[actix::main]` start their runtime before that line: use `#[fiber::main]` in their place, which calls `init` itself",
    )
}

/// How often a child sends heartbeats before it has its parent's configuration.
const EARLY_BEAT: Duration = Duration::from_secs(1);
/// How long the parent's host may leave them unconfirmed until then.
const SILENT_PARENT: Duration = Duration::from_secs(30);

/// Makes this program able to host fiber's processes: the first thing that `main` has to do.
///
/// In a process that a user started it returns at once. In a process that fiber started it does not
/// return: the process works for its parent, and then exits. `#[fiber::main]` calls it, and so does
/// `fiber::test_harness!()`.
///
/// `#[tokio::main]` and `#[actix::main]` start their runtime before the first line of `main`: put
/// `#[fiber::main]` in their place, which runs an `async fn main` in an actix system of its own.
///
/// # Examples
/// ```
/// fn main() -> fiber::Result<()> {
///     fiber::init();
///     let pool = fiber::Pool::new(2)?;
///     assert_eq!(pool.apply(|x: u32| x + 1, 1).wait()?, 2);
///     Ok(())
/// }
/// ```
pub fn init() {
    if INITIALISED.load(Ordering::Acquire) {
        return;
    }
    fiber_backends::run_if_guard();
    let child = match fiber_core::secrets::take_variables("FIBER_PARENT", "FIBER_KEY") {
        Some([None, None]) => None,
        Some([runtime, key]) => Some((runtime.unwrap_or_default(), key.unwrap_or_default())),
        // Its parent has the words for this code: a line that this process printed would stand
        // there twice.
        None if std::env::var_os("FIBER_PARENT").is_some() => quit(EXIT_TOO_LATE),
        None => None,
    };
    INITIALISED.store(true, Ordering::Release);
    fiber_core::malloc::keep_large_blocks();
    let Some((runtime, key)) = child else { return };
    if tokio::runtime::Handle::try_current().is_ok() {
        // An async task of this process could not run in a runtime of its own.
        quit(EXIT_TOO_LATE);
    }
    let calling = runtime.to_str().and_then(|text| text.parse::<ParentInfo>().ok());
    let key =
        fiber_core::secrets::read_secret(key).and_then(|text| text.parse::<SessionKey>().ok());
    fiber_core::secrets::close_stdin();
    match (calling, key) {
        (Some(calling), Some(key)) => run(calling, key),
        _ => give_up(
            "FIBER_PARENT and FIBER_KEY are set to something else than fiber sets them to: unset them",
        ),
    }
}

/// Who called this process into being.
#[derive(Clone)]
struct ParentInfo {
    id: ProcessId,
    parent: ProcessId,
    /// Unless it runs elsewhere.
    parent_pid: Option<i32>,
    address: String,
}

impl FromStr for ParentInfo {
    type Err = ();

    fn from_str(text: &str) -> Result<ParentInfo, ()> {
        let mut parts = text.splitn(4, ':');
        let mut next = || parts.next().ok_or(());
        let id = next()?.parse().map_err(drop)?;
        let parent = next()?.parse().map_err(drop)?;
        let parent_pid = match next()? {
            REMOTE => None,
            pid => Some(pid.parse().map_err(drop)?),
        };
        Ok(ParentInfo { id, parent, parent_pid, address: next()?.to_string() })
    }
}

/// Where a node listens that is not on its parent's host: the others reach it where its parent
/// does.
fn listen_towards(parent: &str) -> ListenAddress {
    let address =
        parent.rsplit_once('/').and_then(|(_, address)| address.parse::<SocketAddr>().ok());
    let own = address.and_then(|address| local_ip_towards(address.ip()).ok());
    let bind = own.unwrap_or(Ipv4Addr::LOCALHOST.into());
    ListenAddress { link: LinkKind::Nng, bind, advertised: None, locality: Locality::Remote }
}

fn run(calling: ParentInfo, key: SessionKey) -> ! {
    if let Some(parent) = calling.parent_pid {
        die_with_parent(parent);
    }
    name_process();
    entry::prepare().unwrap_or_else(|error| give_up(&error.to_string()));
    let arbiter = start_thread().unwrap_or_else(|error| give_up(&error.to_string()));
    let (sender, main) = std::sync::mpsc::channel();
    let node_arbiter = arbiter.clone();
    arbiter.spawn_fn(move || {
        tokio::task::spawn_local(async move {
            let met =
                connect_to(&calling.address, &key, calling.id, calling.parent, Role::Child).await;
            let mut connection = met.unwrap_or_else(|problem| {
                give_up(&format!("the parent can't be reached at {}: {problem}", calling.address))
            });
            // Nothing else tells whether the parent's host is still there, before the parent says
            // how often to speak.
            connection.link.set_peer_timeout(SILENT_PARENT);
            let link = Arc::clone(&connection.link);
            let early = tokio::task::spawn_local(send_heartbeats(link, EARLY_BEAT, || {
                ControlMessage::Heartbeat.message()
            }));
            let Some(ControlMessage::Start { config, request }) = first(&mut connection).await
            else {
                // The parent went away, or never meant this process.
                quit(EXIT_NOT_STARTED)
            };
            early.abort();
            connection.incoming.set_limit(message_limit(&config));
            let backend = backend(&config).unwrap_or_else(|error| give_up(&error.to_string()));
            let beat = config.heartbeat;
            connection.link.set_peer_timeout(config.heartbeat_timeout);
            config.clone().inherit();
            let listen_on = calling.parent_pid.is_none().then(|| listen_towards(&calling.address));
            let runtime = Runtime::new(
                Endpoint::new(calling.id, *config, key, node_arbiter),
                backend,
                listen_on,
            );
            *CURRENT.lock() = Some(runtime);
            fiber_core::at_exit::at_exit(super::shutdown_on_exit);
            // Before the root starts: from now on the parent takes silence for death.
            tokio::task::spawn_local(send_heartbeats(Arc::clone(&connection.link), beat, || {
                ControlMessage::Heartbeat.message()
            }));
            let peer = runtime.mesh().join(calling.parent, &connection.link);
            let running = request.start(runtime, Arc::clone(&connection.link));
            let running = running.unwrap_or_else(|error| give_up(&error.to_string()));
            let _ = sender.send(running.run);
            serve(connection, running.receive, peer).await
        });
    });
    match main.recv() {
        Ok(main) => {
            let code = main();
            fiber_core::at_exit::flush_output();
            std::process::exit(code)
        }
        Err(_) => give_up("fiber's thread ended"),
    }
}

async fn first(connection: &mut Connection) -> Option<ControlMessage> {
    // The limit of an unproven peer is too small for what a parent sends first.
    connection.incoming.set_limit(i32::MAX as usize);
    control(&connection.next().await?.ok()?)
}

/// Passes on what the parent sends, and ends this process when the parent is gone.
async fn serve(
    mut connection: Connection,
    mut inbox: Box<dyn FnMut(ParentMessage)>,
    mut parent: MeshPeer,
) -> ! {
    while let Some(Ok(mut message)) = connection.next().await {
        match message.first() {
            Some(&MAIN) => {
                message.advance(1);
                inbox(ParentMessage::Data(message));
            }
            Some(&MESH) => parent.receive(message),
            _ => {
                if let Some(ControlMessage::Shutdown) = control(&message) {
                    inbox(ParentMessage::Shutdown);
                }
            }
        }
    }
    // If the parent is still there, it must not take this for an orderly end.
    quit(EXIT_LINK_LOST)
}

/// Has the kernel kill this process when its parent dies, even if this process hangs or stands
/// still by then.
fn die_with_parent(parent: i32) {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    // The parent may have died before.
    let actual = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    if actual != parent {
        quit(0)
    }
}

/// Process lists show a process that was started through `/proc/self/exe` as `exe`, unless it says
/// otherwise.
fn name_process() {
    let own = std::env::current_exe().ok();
    let name = own
        .as_ref()
        .and_then(|path| path.file_name())
        .map(|name| name.to_string_lossy().into_owned());
    let name: String =
        name.unwrap_or_default().trim_end_matches(" (deleted)").chars().take(15).collect();
    if let Ok(name) = std::ffi::CString::new(name) {
        let _ = rustix::thread::set_name(&name);
    }
}

/// Ends this process and its children at once, without running what the program has registered for
/// its exit: other threads are at work.
fn quit(code: i32) -> ! {
    if let Some(runtime) = CURRENT.try_lock().and_then(|current| *current) {
        runtime.kill_children();
    }
    signal_hook::low_level::exit(code)
}

fn give_up(problem: &str) -> ! {
    eprintln!("fiber: this process can't work for its parent: {problem}");
    quit(EXIT_NOT_STARTED)
}
