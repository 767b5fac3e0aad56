//! Starts the service, asks it, and ends it as a container engine does.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

struct Service {
    process: Child,
    address: String,
    _output: BufReader<ChildStdout>,
}

impl Service {
    fn start(journals: &Path) -> Service {
        let mut process = Command::new(env!("CARGO_BIN_EXE_{name}"))
            .env("LISTEN", "127.0.0.1:0") // any free port
            .env("FIBER_JOURNALS", journals)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut output = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut line = String::new();
        output.read_line(&mut line).expect("it is text");
        let address = line
            .split('/')
            .nth(2)
            .expect("it prints its address")
            .to_string();
        Service {
            process,
            address,
            _output: output,
        }
    }

    /// Sends a request, and returns the whole answer.
    fn ask(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let head = "HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        write!(stream, "{request} {head}").expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it is text");
        answer
    }

    /// Asks the service to end, and waits until it has.
    fn terminate(mut self) -> ExitStatus {
        let pid = self.process.id().to_string();
        let killed = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(killed.expect("`kill` is there").success());
        self.process.wait().expect("it ends")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
    }
}

#[test]
fn visits_are_counted_beyond_the_end_of_the_service() {
    let journals = Path::new(env!("CARGO_TARGET_TMPDIR")).join("journals");
    let _ = std::fs::remove_dir_all(&journals);

    let service = Service::start(&journals);
    assert!(service.ask("GET /health").starts_with("HTTP/1.1 200"));
    assert!(service.ask("GET /visits/home").ends_with("\r\n\r\n0\n"));
    assert!(service.ask("POST /visits/home").ends_with("\r\n\r\n1\n"));
    assert!(service.ask("POST /visits/home").ends_with("\r\n\r\n2\n"));
    assert!(service.ask("GET /visits/other").ends_with("\r\n\r\n0\n"));
    assert!(service.terminate().success());

    let again = Service::start(&journals);
    assert!(again.ask("POST /visits/home").ends_with("\r\n\r\n3\n"));
    assert!(again.terminate().success());
}
