use std::time::Duration;

use fiber_core::ProcessId;
use fiber_transport::{Closed, Message};

use super::super::wire::Arrived;
use super::*;
use crate::mesh::Unanswered;

#[test]
fn the_time_of_bytes_follows_what_was_measured() {
    let time = TravelTime::default();
    assert!((time.nanos_per_byte() - 1.0).abs() < 1e-9);
    time.note(MIN_MEASURED - 1, Instant::now() - Duration::from_secs(9));
    assert!((time.nanos_per_byte() - 1.0).abs() < 1e-9, "that is too short");
    for _ in 0..20 {
        time.note(10 << 20, Instant::now() - Duration::from_secs(1));
    }
    assert!((90.0..100.0).contains(&time.nanos_per_byte()), "{}", time.nanos_per_byte());
}

/// A link to a host that notes which blobs it shall get with which message.
#[derive(Debug, Default)]
struct ToCopier(Mutex<Vec<Vec<(BlobKey, BlobKey)>>>);

impl Link for ToCopier {
    fn send(&self, message: Message) -> Result<(), Closed> {
        let mut bytes = Bytes::from(message.head);
        bytes.advance(1);
        if let Some(Arrived::Command(ToHost::CopyBlobs { blobs, .. })) = wire::read(bytes.into()) {
            let numbers = blobs.iter().map(|blob| (blob.from, blob.key)).collect();
            self.0.lock().push(numbers);
        }
        Ok(())
    }

    fn close(&self) {}

    fn set_peer_timeout(&self, _: Duration) {}
}

fn wire_to(place: Place) -> (Arc<HostWire>, Arc<ToCopier>) {
    let link = Arc::new(ToCopier::default());
    let of_wire = Arc::clone(&link) as Arc<dyn Link>;
    (Arc::new(HostWire::new(of_wire, Arc::default(), place, Arc::default())), link)
}

/// Asks for blobs, each of which answers with its place among them.
fn ask(wire: &Arc<HostWire>, blobs: &[Blob], answers: &Arc<Mutex<Vec<(usize, bool)>>>) {
    let wanted = blobs.iter().cloned().enumerate().map(|(number, blob)| {
        let answers = Arc::clone(answers);
        let then: Then = Box::new(move |is_there| answers.lock().push((number, is_there)));
        (blob, then)
    });
    wire.copy(wanted.collect());
}

#[test]
fn blobs_of_one_host_are_asked_for_together_and_once() {
    const SMALL: usize = MAX_PIECE / 4;
    let (here, link) = wire_to(1);
    let (other, _) = wire_to(2);
    let (third, _) = wire_to(3);
    let answers = Arc::<Mutex<Vec<_>>>::default();
    let lens = [SMALL, SMALL, 2 * MAX_PIECE, SMALL, SMALL, SMALL, SMALL, SMALL];
    let mut blobs: Vec<_> =
        lens.iter().zip(1..).map(|(len, key)| other.staying(key, *len)).collect();
    blobs.push(third.staying(1, SMALL));
    ask(&here, &blobs, &answers);
    assert_eq!(answers.lock().len(), blobs.len(), "no host has a door yet");
    assert!(answers.lock().drain(..).all(|(_, is_there)| !is_there));

    for (number, wire) in [(2, &other), (3, &third)] {
        let owner = ProcessRef { id: ProcessId(number), address: "nowhere".into() };
        wire.set_door(Door { owner, port: PortId(number) });
    }
    ask(&here, &blobs, &answers);
    ask(&here, &blobs[..1], &answers);
    let asked = std::mem::take(&mut *link.0.lock());
    let from: Vec<Vec<_>> =
        asked.iter().map(|piece| piece.iter().map(|(from, _)| *from).collect()).collect();
    assert_eq!(from, [vec![1, 2], vec![3], vec![4, 5, 6, 7], vec![8], vec![1]]);
    assert!(answers.lock().is_empty());

    // The host has all but one, which the two askers of the first blob do not learn.
    for (from, key) in asked.iter().flatten() {
        here.copied(*key, *from != 5);
    }
    let mut known = std::mem::take(&mut *answers.lock());
    known.sort_unstable();
    let expected = [(0, true), (0, true), (1, true), (2, true), (3, true), (4, false)];
    assert_eq!(known[..6], expected);
    assert!(known[6..].iter().map(|(number, _)| *number).eq(5..9));
    assert_eq!(blobs[0].places(), [2, 1]);
    assert_eq!(blobs[4].places(), [2]);

    // The host is asked again for blobs that it did not have. Those on their way are lost with it.
    ask(&here, &blobs[4..5], &answers);
    assert_eq!(link.0.lock().len(), 1);
    here.lose();
    assert_eq!(*answers.lock(), [(0, false)]);
}

#[test]
fn an_answer_says_which_blobs_are_missing() {
    let blob = |byte| Some(Blob::private(vec![byte; 10].into()));
    let mut frame = Vec::new();
    let value = value_of(vec![blob(1), None, blob(3)]);
    let blobs = fiber_values::codec::append_apart(&mut frame, &value).unwrap();
    let received = fiber_transport::Received { bytes: frame.into(), blobs };
    let bytes = |blob: &Option<Blob>| blob.as_ref().map(|blob| blob[0]);
    let arrived: Vec<_> = blobs_of(Ok(received), 3).iter().map(bytes).collect();
    assert_eq!(arrived, [Some(1), None, Some(3)]);
    let lost = Unanswered::Lost(ExitReason::LinkLost("x".into()));
    assert!(blobs_of(Err(lost), 2).iter().all(Option::is_none));
}
