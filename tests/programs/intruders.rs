//! A program refuses connections from outside of its session, and keeps working.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

use fiber_test_support::program::{Program, Setup};
use fiber_test_support::trial;
use rustix::process::{Resource, getrlimit, setrlimit};

fn at_work(link: &str) -> (Program, String) {
    let program = Setup::new("work on demand").env("FIBER_LINK", link).start();
    program.line("ready");
    let address = address(&program, link);
    (program, address)
}

/// Returns the address of the program, as its children receive it.
fn address(program: &Program, link: &str) -> String {
    let value = program.processes().into_iter().find_map(|pid| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
        let variables = environment.split(|byte| *byte == 0);
        let parent =
            variables.filter_map(|variable| variable.strip_prefix(b"FIBER_PARENT=")).next()?;
        String::from_utf8(parent.to_vec()).ok()
    });
    let value = value.expect("its children receive the address");
    let address = value.splitn(6, ',').nth(5).expect("it has an address").to_string();
    assert!(address.starts_with(link), "{address}");
    address
}

fn unix(address: &str) -> UnixStream {
    let name = address.strip_prefix("unix:").expect("it is a Unix socket");
    UnixStream::connect_addr(&SocketAddr::from_abstract_name(name).unwrap()).expect("it listens")
}

fn tcp(address: &str) -> TcpStream {
    TcpStream::connect(address.strip_prefix("nng:tcp://").expect("it is a port"))
        .expect("it listens")
}

/// Checks that the pool works and that new processes can start.
fn keeps_working(program: &mut Program) {
    for (work, result) in [("map", "sum 332833500"), ("spawn", "spawned 9")] {
        program.say(work);
        program.line(result);
    }
}

/// Returns data that no peer of a session sends.
fn nonsense() -> Vec<Vec<u8>> {
    let frame = |body: &[u8]| [&(body.len() as u32).to_le_bytes(), body].concat();
    vec![
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        vec![0xff; 100_000],
        vec![0; 4],
        frame(b"nonsense"),
        frame(&[0x80]),
        // A hello of another version.
        frame(&[&b"\x82\xa5fiber\x63\xa5nonce\xdc\x00\x20"[..], &[0; 32]].concat()),
    ]
}

/// Sends data, closes its own end, and waits until the other side closes the connection.
fn say<S: Read + Write>(
    mut stream: S,
    words: &[u8],
    no_more: fn(&S, Shutdown) -> std::io::Result<()>,
) {
    // The other side may close before it has read everything.
    let _ = stream.write_all(words);
    let _ = no_more(&stream, Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.len() < 200, "it answered {answer:?}");
}

#[trial]
fn nonsense_on_a_unix_socket_is_refused() {
    let (mut program, address) = at_work("unix");
    for words in nonsense() {
        say(unix(&address), &words, UnixStream::shutdown);
        keeps_working(&mut program);
    }
    program.end().code(0);
}

#[trial]
fn nonsense_on_a_port_is_refused() {
    let (mut program, address) = at_work("nng");
    // The first bytes of nng's protocol: a PUSH socket.
    let greeting = b"\0SP\0\0\x50\0\0";
    for words in nonsense() {
        say(tcp(&address), &words, TcpStream::shutdown);
        let message = [&greeting[..], &(words.len() as u64).to_be_bytes(), &words].concat();
        say(tcp(&address), &message, TcpStream::shutdown);
        keeps_working(&mut program);
    }
    program.end().code(0);
}

#[trial]
fn a_peer_without_the_key_is_refused() {
    let key = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    for link in ["unix", "nng"] {
        let (mut program, address) = at_work(link);
        let parent = format!("1,2,{},2,alone,{address}", std::process::id());
        let ending = Setup::new("main with init")
            .env("FIBER_PARENT", parent)
            .env("FIBER_KEY", key)
            .run()
            .code(70);
        assert!(ending.errors.contains("key"), "{}", ending.errors);
        keeps_working(&mut program);
    }
}

#[trial]
fn silent_connections_block_no_rank() {
    let ending =
        Setup::new("ring among silent connections").env("FIBER_LINK", "unix").run().code(0);
    ending.says(&["sums Ok([3.0, 3.0, 3.0])"]);
}

/// There are more connections than the program's limit of descriptors.
#[trial]
fn many_unauthenticated_connections_leave_descriptors_for_workers() {
    let mut own = getrlimit(Resource::Nofile);
    own.current = own.maximum;
    setrlimit(Resource::Nofile, own).unwrap();
    let executable = std::env::current_exe().unwrap();
    for link in ["unix", "nng"] {
        let setup =
            Setup::with_executable("work on demand", "prlimit".as_ref()).env("FIBER_LINK", link);
        let mut program = setup.args(&["--nofile=1024:1024", executable.to_str().unwrap()]).start();
        program.line("ready");
        let address = address(&program, link);
        let _connections: Vec<Box<dyn Read>> = (0..1500)
            .map(|_| match link {
                "unix" => Box::new(unix(&address)) as Box<dyn Read>,
                _ => Box::new(tcp(&address)),
            })
            .collect();
        keeps_working(&mut program);
        program.say("lose workers");
        program.line("lost 6");
        keeps_working(&mut program);
        let taken = std::fs::read_dir(format!("/proc/{}/fd", program.pid())).unwrap().count();
        assert!(taken < 600, "{taken} descriptors");
        program.end().code(0);
    }
}
