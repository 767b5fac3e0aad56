//! Streams that another process may have made non-blocking.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};

/// A stream that waits for its other end where the system says that it would block. A standard
/// stream may be non-blocking without this process's doing: other programs share its pipe.
#[derive(Debug)]
pub struct Patient<S>(pub S);

impl<S: AsFd> Patient<S> {
    fn wait(&self, end: PollFlags) -> io::Result<()> {
        let mut stream = [PollFd::new(&self.0, end)];
        rustix::io::retry_on_intr(|| poll(&mut stream, None))?;
        Ok(())
    }
}

impl<S: Read + AsFd> Read for Patient<S> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(PollFlags::IN)?,
                read => return read,
            }
        }
    }
}

impl<S: Write + AsFd> Write for Patient<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(PollFlags::OUT)?,
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        loop {
            match self.0.flush() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(PollFlags::OUT)?,
                flushed => return flushed,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_arrives_though_the_pipe_is_full_and_non_blocking() {
        let (mut reader, writer) = io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&writer, true).unwrap();
        let bytes = vec![b'x'; 1 << 20];
        let reading = std::thread::spawn(move || {
            let mut read = Vec::new();
            reader.read_to_end(&mut read).unwrap();
            read.len()
        });
        let mut writer = Patient(writer);
        writer.write_all(&bytes).unwrap();
        writer.flush().unwrap();
        drop(writer);
        assert_eq!(reading.join().unwrap(), bytes.len());
    }
}
