//! Everything that this machine sends and receives, as a listener on its wires records it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;

use fiber_test_support::wait::wait_until;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, eth, recv, socket_with};

/// The room for packets that were not read yet, in bytes.
const ROOM: usize = 64 << 20;
/// No packet is longer.
const LONGEST: usize = 256 << 10;
/// The number of TCP in the header of a packet.
const TCP: u8 = 6;

/// A recording of all packets of all interfaces.
pub(crate) struct Recording {
    /// The last packet of the recording ends with this.
    mark: [u8; 32],
    reader: JoinHandle<Wire>,
}

impl Recording {
    /// Starts to record.
    ///
    /// # Errors
    /// [`Errno::PERM`] if this process may not.
    pub(crate) fn start() -> Result<Recording, Errno> {
        // The kernel takes the headers of the interfaces off.
        let (kind, flags) = (SocketType::DGRAM, SocketFlags::CLOEXEC);
        let socket = socket_with(AddressFamily::PACKET, kind, flags, Some(eth::ALL))?;
        set_socket_recv_buffer_size_force(&socket, ROOM)?;
        let mark: [u8; 32] = rand::random();
        Ok(Recording { mark, reader: std::thread::spawn(move || read(&socket, &mark)) })
    }

    /// Ends the recording after all that was sent before.
    pub(crate) fn end(self) -> Wire {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let address = socket.local_addr().expect("it is bound");
        wait_until("the end of the recording", || {
            // There may have been no room for an earlier one.
            socket.send_to(&self.mark, address).expect("it is short");
            self.reader.is_finished()
        });
        self.reader.join().expect("packets can be read")
    }
}

/// The sender and the receiver of a stream.
pub(crate) type Direction = (SocketAddrV4, SocketAddrV4);

/// The recorded packets.
pub(crate) struct Wire {
    /// The streams of TCP.
    pub(crate) streams: BTreeMap<Direction, Stream>,
    /// All other packets.
    others: Vec<Vec<u8>>,
}

impl Wire {
    /// Returns whether these bytes were sent: as they are, in hexadecimal, or in base64.
    pub(crate) fn carries(&self, secret: &[u8]) -> bool {
        let forms = forms(secret);
        let mut all = self.streams.values().map(|stream| &stream.bytes).chain(&self.others);
        all.any(|bytes| forms.iter().any(|form| bytes.windows(form.len()).any(|part| part == form)))
    }
}

/// One direction of a connection.
pub(crate) struct Stream {
    pub(crate) bytes: Vec<u8>,
    /// Whether no packet between others is missing.
    pub(crate) is_whole: bool,
}

/// The payload of a packet of TCP.
struct Segment<'a> {
    direction: Direction,
    /// The number of its first byte in the stream.
    number: u32,
    payload: &'a [u8],
}

/// The segments of a stream by their distance from the first recorded one.
struct Segments {
    first: u32,
    payloads: BTreeMap<u32, Vec<u8>>,
}

/// Reads packets up to the one with the mark.
fn read(socket: &OwnedFd, mark: &[u8]) -> Wire {
    let mut buffer = vec![0_u8; LONGEST];
    let (mut streams, mut others) = (BTreeMap::new(), Vec::new());
    loop {
        let received = retry_on_intr(|| recv(socket, &mut buffer[..], RecvFlags::empty()));
        let (length, _) = received.expect("packets can be read");
        let packet = &buffer[..length];
        if packet.ends_with(mark) {
            let joined = |(direction, segments): (_, Segments)| (direction, segments.joined());
            return Wire { streams: streams.into_iter().map(joined).collect(), others };
        }
        let Some(Segment { direction, number, payload }) = segment(packet) else {
            others.push(packet.to_vec());
            continue;
        };
        if payload.is_empty() {
            continue;
        }
        let segments = streams
            .entry(direction)
            .or_insert_with(|| Segments { first: number, payloads: BTreeMap::new() });
        // The loopback interface shows each packet twice: sent, and received.
        let known = segments.payloads.entry(number.wrapping_sub(segments.first)).or_default();
        if known.len() < payload.len() {
            *known = payload.to_vec();
        }
    }
}

/// Returns the part of a stream that a packet of IPv4 has.
fn segment(packet: &[u8]) -> Option<Segment<'_>> {
    let header = packet.first_chunk::<20>()?;
    if header[0] >> 4 != 4 || header[9] != TCP {
        return None;
    }
    let end = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let tcp = packet.get(usize::from(header[0] & 15) * 4..end)?;
    let payload = tcp.get(usize::from(tcp.get(12)? >> 4) * 4..)?;
    let [sender, receiver] = [(12, 0), (16, 2)].map(|(address, port): (usize, usize)| {
        let [a, b, c, d] = [0, 1, 2, 3].map(|index: usize| header[address + index]);
        SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([tcp[port], tcp[port + 1]]))
    });
    let number = u32::from_be_bytes(*tcp[4..].first_chunk()?);
    Some(Segment { direction: (sender, receiver), number, payload })
}

impl Segments {
    fn joined(self) -> Stream {
        let mut stream = Stream { bytes: Vec::new(), is_whole: true };
        for (offset, payload) in self.payloads {
            let offset = offset as usize;
            stream.is_whole &= offset <= stream.bytes.len();
            let known = stream.bytes.len().saturating_sub(offset);
            stream.bytes.extend_from_slice(payload.get(known..).unwrap_or_default());
        }
        stream
    }
}

/// Returns the ways to write bytes. Those in base64 are the digits of whole groups, wherever the
/// bytes are in a longer text.
fn forms(bytes: &[u8]) -> Vec<Vec<u8>> {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut texts = vec![digits.to_uppercase(), digits];
    for start in 0..3 {
        let text = base64(&bytes[start..]);
        texts.extend([text.replace('+', "-").replace('/', "_"), text]);
    }
    texts.into_iter().map(String::into_bytes).chain([bytes.to_vec()]).collect()
}

/// Writes the whole groups of three bytes in base64.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = |&[a, b, c]: &[u8; 3]| {
        let group = u32::from_be_bytes([0, a, b, c]);
        [18_u32, 12, 6, 0].map(|shift| char::from(DIGITS[(group >> shift) as usize & 63]))
    };
    bytes.as_chunks::<3>().0.iter().flat_map(digits).collect()
}
