//! A network between a program and its children that fails on demand.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use fiber_test_support::wait::LONG;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_linger;
use socket2::{SockFilter, SockRef};

/// The delay of bytes: less than the timeout of heartbeats.
const DELAY: Duration = Duration::from_millis(700);
/// The interval of checks whether a connection must fail now.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// A socket filter of one instruction: keep 0 bytes of each packet (`BPF_RET`).
const DROP_ALL: SockFilter = SockFilter::new(0x06, 0, 0, 0);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Both ends get a reset.
    Reset,
    /// No data passes any more, and neither end is closed.
    Stall,
    /// No data passes for a while.
    Delay,
    /// The parent gets the end of the child's data; the child gets nothing.
    CloseToParent,
    /// The reverse.
    CloseToChild,
    /// The child's packets are not even acknowledged any more, as if the parent's host were gone.
    LoseHost,
}

/// Forwards connections, and lets one of them fail on demand.
pub(crate) struct Proxy {
    address: String,
    plan: Arc<FaultPlan>,
}

#[derive(Default)]
struct FaultPlan {
    state: Mutex<FaultState>,
    changed: Condvar,
}

#[derive(Default)]
struct FaultState {
    parent: PathBuf,
    /// The fault of the next connection, and the number of bytes before it.
    next: Option<(Fault, usize)>,
    at_once: bool,
    done: bool,
}

impl Proxy {
    pub(crate) fn new() -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("nng:tcp://{}", listener.local_addr().unwrap());
        let plan = Arc::<FaultPlan>::default();
        let shared = Arc::clone(&plan);
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let plan = Arc::clone(&shared);
                let (parent, fault) = {
                    let mut state = plan.state.lock().unwrap();
                    (std::fs::read_to_string(&state.parent).unwrap(), state.next.take())
                };
                let Ok(far) = TcpStream::connect(parent.strip_prefix("nng:tcp://").unwrap()) else {
                    continue;
                };
                let near = near.unwrap();
                // Either end may close at any time.
                std::thread::spawn(move || drop(forward_until_fault(near, far, fault, &plan)));
            }
        });
        Proxy { address, plan }
    }

    /// Returns whether this process may let a host be lost: newer kernels let root alone filter the
    /// packets of a TCP socket.
    pub(crate) fn can_lose_hosts() -> bool {
        let probe = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        SockRef::from(&probe).attach_filter(&[DROP_ALL]).is_ok()
    }

    /// Returns the address for children.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn reads_parents_address_from(&self, file: PathBuf) {
        self.plan.state.lock().unwrap().parent = file;
    }

    pub(crate) fn expose_next_to(&self, fault: Fault, after: usize) {
        let mut state = self.plan.state.lock().unwrap();
        (state.next, state.at_once, state.done) = (Some((fault, after)), false, false);
    }

    pub(crate) fn fault_now(&self) {
        self.plan.state.lock().unwrap().at_once = true;
    }

    pub(crate) fn wait_for_the_fault(&self) {
        let waiting = self.plan.state.lock().unwrap();
        let (state, _) =
            self.plan.changed.wait_timeout_while(waiting, LONG, |state| !state.done).unwrap();
        assert!(state.done, "the connection did not get that far");
    }
}

/// Forwards data in both directions until both ends have closed, or the fault happens.
fn forward_until_fault(
    mut near: TcpStream,
    mut far: TcpStream,
    mut fault: Option<(Fault, usize)>,
    plan: &FaultPlan,
) -> std::io::Result<()> {
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let mut passed = 0;
    let (mut near_open, mut far_open) = (true, true);
    let mut buffer = vec![0; 64 << 10];
    while near_open || far_open {
        if let Some((kind, after)) = fault
            && (passed >= after || plan.state.lock().unwrap().at_once)
        {
            fault = None;
            let done = || {
                plan.state.lock().unwrap().done = true;
                plan.changed.notify_all();
            };
            match kind {
                Fault::Reset => {
                    set_socket_linger(&near, Some(Duration::ZERO))?;
                    set_socket_linger(&far, Some(Duration::ZERO))?;
                    drop((near, far));
                    done();
                    return Ok(());
                }
                Fault::Stall => {
                    done();
                    return hold_open(&near, &far);
                }
                Fault::LoseHost => {
                    SockRef::from(&near).attach_filter(&[DROP_ALL])?;
                    done();
                    return hold_open(&near, &far);
                }
                Fault::Delay => {
                    done();
                    std::thread::sleep(DELAY);
                }
                Fault::CloseToParent => {
                    far.shutdown(Shutdown::Write)?;
                    done();
                }
                Fault::CloseToChild => {
                    near.shutdown(Shutdown::Write)?;
                    done();
                }
            }
        }
        let interest = |open| if open { PollFlags::IN } else { PollFlags::empty() };
        let (near_ready, far_ready) = {
            let mut both =
                [PollFd::new(&near, interest(near_open)), PollFd::new(&far, interest(far_open))];
            poll(&mut both, Some(&LOOK))?;
            (!both[0].revents().is_empty(), !both[1].revents().is_empty())
        };
        let room = fault.map_or(buffer.len(), |(_, after)| (after - passed).min(buffer.len()));
        if near_ready && near_open {
            let count = forward(&mut near, &mut far, &mut buffer[..room])?;
            near_open = count > 0;
            passed += count;
        } else if far_ready && far_open {
            let count = forward(&mut far, &mut near, &mut buffer[..room])?;
            far_open = count > 0;
            passed += count;
        }
    }
    Ok(())
}

fn forward(from: &mut TcpStream, to: &mut TcpStream, buffer: &mut [u8]) -> std::io::Result<usize> {
    let count = from.read(buffer)?;
    if count == 0 {
        // The other end may be closed already.
        let _ = to.shutdown(Shutdown::Write);
        return Ok(0);
    }
    match to.write_all(&buffer[..count]) {
        // The other end is closed: the data is lost.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(count),
        written => written.map(|()| count),
    }
}

/// Keeps both ends open until they close.
fn hold_open(near: &TcpStream, far: &TcpStream) -> std::io::Result<()> {
    let deadline = Instant::now() + LONG;
    for end in [near, far] {
        loop {
            let mut watched = [PollFd::new(end, PollFlags::RDHUP)];
            poll(&mut watched, Some(&LOOK))?;
            if !watched[0].revents().is_empty() || Instant::now() > deadline {
                break;
            }
        }
    }
    Ok(())
}
