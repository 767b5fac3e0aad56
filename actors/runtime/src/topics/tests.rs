//! Tests of a topic's decisions.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use proptest::prelude::*;

use super::machine::{ClientId, Machine, Outlet};
use super::wire::{Read, Retention, Subscribe, WhenFull};
use super::*;

const HERE: ClientId = ClientId { peer: PeerId::LOCAL, port: PortId(1) };
const THERE: ClientId = ClientId { peer: PeerId::OTHER, port: PortId(1) };
const PLENTY: u64 = 1 << 20;

#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// A message to these subscriptions of this client, or to all of them.
    Message(ClientId, Option<Vec<u64>>, u8),
    Missed(u64, u64),
    TooSlow(u64),
    Admitted(u8),
}

/// The words of the machine, in their order.
#[derive(Default)]
struct Heard(Vec<Said>);

impl Outlet<u8> for Heard {
    fn deliver(&mut self, client: ClientId, to: Option<&[u64]>, message: &Received) {
        self.0.push(Said::Message(client, to.map(<[u64]>::to_vec), message.bytes[0]));
    }

    fn missed(&mut self, _: ClientId, subscription: u64, count: u64) {
        self.0.push(Said::Missed(subscription, count));
    }

    fn too_slow(&mut self, _: ClientId, subscription: u64) {
        self.0.push(Said::TooSlow(subscription));
    }

    fn admitted(&mut self, publisher: u8) {
        self.0.push(Said::Admitted(publisher));
    }
}

/// A topic with the clients `HERE` and `THERE`.
#[derive(Default)]
struct World {
    machine: Machine<u8>,
    heard: Heard,
}

impl World {
    fn new() -> World {
        let mut world = World::default();
        [HERE, THERE].iter().for_each(|client| world.machine.open(*client));
        world
    }

    fn subscribe(&mut self, client: ClientId, id: u64, when_full: WhenFull, window: u32) {
        let subscribe = Subscribe { id, when_full, window, window_bytes: PLENTY };
        self.machine.subscribe(client, &subscribe, &mut self.heard);
    }

    /// Publishes a message whose publisher has the same number.
    fn publish(&mut self, number: u8) {
        self.publish_as(number, Retention::None);
    }

    fn publish_as(&mut self, number: u8, retention: Retention) {
        self.machine.publish(message(number, 1), retention, number, &mut self.heard);
    }

    fn read(&mut self, client: ClientId, subscription: u64, messages: u32) {
        let read = Read { subscription, messages, bytes: messages.into() };
        self.machine.read(client, std::iter::once(read), &mut self.heard);
    }

    fn take(&mut self) -> Vec<Said> {
        std::mem::take(&mut self.heard.0)
    }
}

fn message(number: u8, len: usize) -> Received {
    Received::from(Bytes::from(vec![number; len]))
}

fn to_all(client: ClientId, number: u8) -> Said {
    Said::Message(client, None, number)
}

fn to_some<const N: usize>(client: ClientId, ids: [u64; N], number: u8) -> Said {
    Said::Message(client, Some(ids.to_vec()), number)
}

#[test]
fn a_message_goes_to_each_client_once() {
    let mut world = World::new();
    for id in 1..=3 {
        world.subscribe(HERE, id, WhenFull::Wait, 10);
    }
    world.subscribe(THERE, 1, WhenFull::End, 10);
    world.publish(7);
    assert_eq!(world.take(), [to_all(HERE, 7), to_all(THERE, 7), Said::Admitted(7)]);
    world.machine.unsubscribe(THERE, 1, &mut world.heard);
    world.publish(8);
    assert_eq!(world.take(), [to_all(HERE, 8), Said::Admitted(8)]);
}

#[test]
fn a_retained_message_keeps_no_others_that_came_with_it() {
    let mut world = World::new();
    let received = Bytes::from(vec![7; 64 << 10]);
    let message = Received::from(received.slice(..1));
    world.machine.publish(message, Retention::Message, 7, &mut world.heard);
    assert!(received.is_unique());
    world.subscribe(HERE, 1, WhenFull::Wait, 1);
    assert_eq!(world.take(), [Said::Admitted(7), to_some(HERE, [1], 7)]);
}

#[test]
fn one_that_is_full_waits_for_bytes_too() {
    let mut world = World::new();
    let subscribe = Subscribe { id: 1, when_full: WhenFull::Wait, window: 9, window_bytes: 10 };
    world.machine.subscribe(HERE, &subscribe, &mut world.heard);
    // Any message fits while there is room, however large it is.
    for number in 1..=2 {
        world.machine.publish(message(number, 30), Retention::None, number, &mut world.heard);
    }
    assert_eq!(world.take(), [to_all(HERE, 1), Said::Admitted(1)]);
    let read = Read { subscription: 1, messages: 1, bytes: 30 };
    world.machine.read(HERE, std::iter::once(read), &mut world.heard);
    assert_eq!(world.take(), [to_all(HERE, 2), Said::Admitted(2)]);
}

#[test]
fn newcomers_get_the_last_retained_message_first() {
    let mut world = World::new();
    world.publish_as(1, Retention::Message);
    world.publish_as(2, Retention::Message);
    world.publish(3);
    world.take();
    world.subscribe(HERE, 1, WhenFull::Wait, 1);
    // It counts, so that the next one waits.
    world.publish_as(4, Retention::Clear);
    assert_eq!(world.take(), [to_some(HERE, [1], 2)]);
    world.subscribe(THERE, 1, WhenFull::Wait, 1);
    assert_eq!(world.take(), [to_some(THERE, [1], 2)]);
    world.read(HERE, 1, 1);
    world.read(THERE, 1, 1);
    assert_eq!(world.take(), [Said::Admitted(4)]);
    world.subscribe(HERE, 2, WhenFull::Wait, 1);
    assert_eq!(world.take(), []);
    world.machine.close(HERE, &mut world.heard);
    assert!(!world.machine.is_empty());
    world.machine.close(THERE, &mut world.heard);
    assert!(world.machine.is_empty());
}

#[test]
fn what_is_not_there_is_ignored() {
    let mut world = World::new();
    let nowhere = ClientId { peer: PeerId::OTHER, port: PortId(9) };
    world.subscribe(nowhere, 1, WhenFull::Wait, 1);
    world.read(nowhere, 1, 1);
    world.read(HERE, 1, 1);
    world.machine.unsubscribe(HERE, 1, &mut world.heard);
    world.machine.close(nowhere, &mut world.heard);
    world.publish(1);
    assert_eq!(world.take(), [Said::Admitted(1)]);
    // A subscription that says too much has no more room than its window.
    world.subscribe(HERE, 1, WhenFull::Wait, 1);
    world.read(HERE, 1, 5);
    (2..=3).for_each(|number| world.publish(number));
    assert_eq!(world.take(), [to_all(HERE, 2), Said::Admitted(2)]);
}

/// One step of a random program.
#[derive(Clone, Debug)]
enum Step {
    Publish,
    Subscribe(bool, u8, u32),
    Unsubscribe(usize),
    Read(usize),
    Close(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Publish),
        2 => (any::<bool>(), 0_u8..3, 1_u32..5)
            .prop_map(|(there, kind, window)| Step::Subscribe(there, kind, window)),
        1 => any::<usize>().prop_map(Step::Unsubscribe),
        6 => any::<usize>().prop_map(Step::Read),
        1 => any::<bool>().prop_map(Step::Close),
    ]
}

/// A subscription as its reader sees it.
struct Seen {
    client: ClientId,
    id: u64,
    when_full: WhenFull,
    /// The next message, if none is missed.
    next: u64,
    unread: u32,
    window: u32,
    missed: u64,
    is_over: bool,
}

proptest! {
    /// Each subscription gets all messages from its start on in their order, but for those that it
    /// hears it has missed; no window overflows; a publisher waits only for one that is full.
    #[test]
    fn nothing_is_lost_silently(steps in proptest::collection::vec(step(), 1..200)) {
        let mut machine = Machine::<u8>::default();
        let mut log = Log::default();
        let (mut seen, mut published) = (Vec::<Seen>::new(), 0_u64);
        [HERE, THERE].iter().for_each(|client| machine.open(*client));
        for step in steps {
            match step {
                Step::Publish => {
                    let body = Received::from(Bytes::from(published.to_le_bytes().to_vec()));
                    published += 1;
                    machine.publish(body, Retention::None, 0, &mut log);
                }
                Step::Subscribe(is_there, kind, window) => {
                    let client = if is_there { THERE } else { HERE };
                    let kinds = [WhenFull::Wait, WhenFull::KeepNewest(window), WhenFull::End];
                    let (when_full, id) = (kinds[kind as usize], seen.len() as u64);
                    let new = Subscribe { id, when_full, window, window_bytes: PLENTY };
                    machine.subscribe(client, &new, &mut log);
                    // The waiting messages come, too.
                    let (next, unread, missed) = (log.admitted, 0, 0);
                    let is_over = false;
                    let new = Seen { client, id, when_full, next, unread, window, missed, is_over };
                    seen.push(new);
                }
                Step::Unsubscribe(at) if !seen.is_empty() => {
                    let at = at % seen.len();
                    let old = &mut seen[at];
                    old.is_over = true;
                    machine.unsubscribe(old.client, old.id, &mut log);
                }
                Step::Read(at) if !seen.is_empty() => {
                    let at = at % seen.len();
                    let reader = &mut seen[at];
                    let (subscription, messages) = (reader.id, reader.unread);
                    reader.unread = 0;
                    let read = Read { subscription, messages, bytes: 8 * u64::from(messages) };
                    machine.read(reader.client, std::iter::once(read), &mut log);
                }
                Step::Close(is_there) => {
                    let client = if is_there { THERE } else { HERE };
                    let closed = seen.iter_mut().filter(|seen| seen.client == client);
                    closed.for_each(|closed| closed.is_over = true);
                    machine.close(client, &mut log);
                    machine.open(client);
                }
                Step::Unsubscribe(_) | Step::Read(_) => {}
            }
            log.check(&mut seen)?;
            let is_held_up = seen.iter().any(|seen| {
                seen.when_full == WhenFull::Wait && !seen.is_over && seen.unread == seen.window
            });
            prop_assert!(log.admitted == published || is_held_up);
        }
    }
}

enum Addressees {
    /// All but these, which have ended before.
    AllBut(HashSet<u64>),
    Some(Vec<u64>),
}

/// The words of a machine, by subscriptions.
#[derive(Default)]
struct Log {
    said: Vec<(ClientId, Addressees, u64)>,
    missed: HashMap<u64, u64>,
    too_slow: HashSet<u64>,
    admitted: u64,
}

impl Outlet<u8> for Log {
    fn deliver(&mut self, client: ClientId, to: Option<&[u64]>, message: &Received) {
        let number = u64::from_le_bytes(message.bytes[..].try_into().unwrap());
        let to = match to {
            Some(ids) => Addressees::Some(ids.to_vec()),
            None => Addressees::AllBut(self.too_slow.clone()),
        };
        self.said.push((client, to, number));
    }

    fn missed(&mut self, _: ClientId, subscription: u64, count: u64) {
        *self.missed.entry(subscription).or_default() += count;
    }

    fn too_slow(&mut self, _: ClientId, subscription: u64) {
        assert!(self.too_slow.insert(subscription));
    }

    fn admitted(&mut self, _: u8) {
        self.admitted += 1;
    }
}

impl Log {
    fn check(&mut self, all: &mut [Seen]) -> Result<(), TestCaseError> {
        for (client, to, number) in self.said.drain(..) {
            let is_meant = |seen: &&mut Seen| {
                seen.client == client
                    && match &to {
                        Addressees::Some(ids) => ids.contains(&seen.id),
                        Addressees::AllBut(ids) => !seen.is_over && !ids.contains(&seen.id),
                    }
            };
            for seen in all.iter_mut().filter(is_meant) {
                let missed = number - seen.next;
                prop_assert!(missed == 0 || matches!(seen.when_full, WhenFull::KeepNewest(_)));
                seen.missed += missed;
                seen.next = number + 1;
                seen.unread += 1;
                prop_assert!(seen.unread <= seen.window);
            }
        }
        for seen in all.iter_mut().filter(|seen| !seen.is_over) {
            let told = self.missed.get(&seen.id).copied().unwrap_or_default();
            prop_assert_eq!(told, seen.missed);
            seen.is_over |= self.too_slow.contains(&seen.id);
            prop_assert!(
                seen.is_over || seen.when_full != WhenFull::Wait || seen.next == self.admitted
            );
        }
        Ok(())
    }
}
