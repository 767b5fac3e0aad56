//! Pipes between processes.

use fiber::sync::Event;
use fiber::{
    Error, Pipe, Process,
    pipe::{PipeReceiver, PipeSender},
};

fn closed<T: std::fmt::Debug>(outcome: fiber::Result<T>) -> bool {
    match outcome.unwrap_err() {
        Error::Closed { .. } => true,
        other => panic!("{other}"),
    }
}

#[test]
fn both_ends_of_a_duplex_pipe_send_and_receive() {
    let (here, there) = Pipe::<u32, String>::new().unwrap();
    let child = |pipe: Pipe<String, u32>| {
        pipe.send("first".into()).wait().unwrap();
        for n in pipe.stream().wait() {
            pipe.send(n.unwrap().to_string()).wait().unwrap();
        }
    };
    let process = Process::spawn(child, there);
    assert_eq!(here.recv().wait().unwrap(), "first");
    for n in 0..1000 {
        here.send(n).wait().unwrap();
    }
    for n in 0..1000 {
        assert_eq!(here.recv().wait().unwrap(), n.to_string());
    }
    drop(here);
    process.wait().unwrap();
}

#[test]
fn a_child_and_a_grandchild_exchange_elements() {
    let (one, other) = Pipe::<u32>::new().unwrap();
    let child = |one: Pipe<u32>, other: Pipe<u32>| {
        let grandchild = |other: Pipe<u32>| other.stream().wait().map(Result::unwrap).sum::<u32>();
        let process = Process::spawn(grandchild, other);
        (0..100).for_each(|n| one.send(n).wait().unwrap());
        drop(one);
        process.wait().unwrap()
    };
    assert_eq!(Process::spawn(child, (one, other)).wait().unwrap(), 4950);
}

/// Returns the number of page faults of this process.
fn page_faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("it is Linux");
    let after_name = stat.rsplit_once(") ").expect("a name").1;
    after_name.split(' ').nth(7).expect("it is there").parse().expect("a number")
}

#[test]
fn the_memory_of_large_messages_is_reused() {
    const MESSAGES: u64 = 1000;
    /// More than are in flight at a time.
    const PAGES_OF_SOME: u64 = 16 * (1 << 20) / 4096;
    let (sender, receiver) = Pipe::one_way().unwrap();
    let send = |sender: PipeSender<String>| {
        let message = "x".repeat(1 << 20);
        let before = page_faults();
        (0..MESSAGES).for_each(|_| sender.send(message.clone()).wait().unwrap());
        page_faults() - before
    };
    let process = Process::spawn(send, sender);
    assert_eq!(
        receiver.stream().wait().map(|message| message.unwrap().len() as u64).sum::<u64>(),
        MESSAGES << 20
    );
    let faults = process.wait().unwrap();
    assert!(faults < PAGES_OF_SOME, "{faults} pages");
}

#[test]
fn recv_fails_after_the_last_element_when_the_other_end_was_dropped() {
    let (sender, receiver) = Pipe::<u32>::one_way().unwrap();
    let clone = sender.clone();
    sender.send(1).wait().unwrap();
    drop(sender);
    clone.send(2).wait().unwrap();
    drop(clone);
    assert_eq!((receiver.recv().wait().unwrap(), receiver.recv().wait().unwrap()), (1, 2));
    assert!(closed(receiver.recv().wait()));
    assert_eq!(receiver.stream().wait().count(), 0);

    let (sender, receiver) = Pipe::<u32>::one_way().unwrap();
    drop(receiver);
    assert!(closed(sender.send(1).wait()));
}

#[test]
fn a_sender_waits_while_the_pipe_is_full() {
    let (sender, receiver) = Pipe::<serde_bytes::ByteBuf>::one_way().unwrap();
    let flood = |sender: PipeSender<serde_bytes::ByteBuf>| {
        for n in 0..64_u8 {
            sender.send(serde_bytes::ByteBuf::from(vec![n; 1 << 20])).wait().unwrap();
        }
    };
    let child = Process::spawn(flood, sender);
    for n in 0..64 {
        let element = receiver.recv().wait().unwrap();
        assert!(element.len() == 1 << 20 && element[77] == n);
    }
    assert!(closed(receiver.recv().wait()));
    child.wait().unwrap();
    let (sender, receiver) = Pipe::<Vec<u8>>::one_way().unwrap();
    let waits = loop {
        let late =
            sender.send(vec![0; 1 << 20]).timeout(std::time::Duration::from_millis(20)).wait();
        if late.is_err() {
            break late;
        }
    };
    assert!(matches!(waits, Err(Error::TimedOut { .. })));
    drop(receiver);
}

/// Sends more than the pipe holds without its reader.
fn send_much(sender: &PipeSender<String>) {
    ["a", "b", "c"].iter().for_each(|request| sender.send(request.repeat(5 << 20)).wait().unwrap());
}

fn letters(receiver: &PipeReceiver<String>) -> String {
    receiver.stream().wait().map(|element| element.unwrap().remove(0)).collect()
}

#[test]
fn elements_that_wait_for_room_survive_the_exit_of_their_sender() {
    let (sender, receiver) = Pipe::one_way().unwrap();
    let child = Process::spawn(|sender: PipeSender<String>| send_much(&sender), sender);
    child.wait().unwrap();
    assert_eq!(letters(&receiver), "abc");
}

#[test]
fn elements_that_wait_for_room_survive_the_death_of_their_sender() {
    let (sender, receiver) = Pipe::one_way().unwrap();
    let sent = Event::new().unwrap();
    let child = |sender: PipeSender<String>, sent: Event| -> () {
        send_much(&sender);
        sent.set().wait().unwrap();
        std::process::abort()
    };
    let child = Process::spawn(child, (sender, sent));
    assert!(child.wait().is_err());
    assert_eq!(letters(&receiver), "abc");
}

#[test]
fn an_end_can_be_sent_through_a_pipe() {
    let (outer, outer_there) = Pipe::<PipeReceiver<u32>>::one_way().unwrap();
    let read = |pipes: PipeReceiver<PipeReceiver<u32>>| {
        let inner = pipes.recv().wait().unwrap();
        inner.stream().wait().map(Result::unwrap).sum::<u32>()
    };
    let child = Process::spawn(read, outer_there);
    let (sender, receiver) = Pipe::one_way().unwrap();
    outer.send(receiver).wait().unwrap();
    (0..10).for_each(|n| sender.send(n).wait().unwrap());
    drop(sender);
    assert_eq!(child.wait().unwrap(), 45);
}
