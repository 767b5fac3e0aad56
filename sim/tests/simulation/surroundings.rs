//! The surroundings of a program in a world: runtimes, sockets, clocks, random numbers, files.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use actix::prelude::*;
use fiber::Pool;
use fiber::sim;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

struct Adder(u64);

impl Actor for Adder {
    type Context = Context<Self>;
}

#[derive(Message)]
#[rtype(result = "u64")]
struct Add(u64);

#[fiber::handlers]
impl Adder {
    fn add(&mut self, Add(number): Add) -> u64 {
        self.0 += number;
        self.0
    }
}

#[test]
fn a_plain_actor_runs_on_the_main_thread_and_in_an_arbiter() {
    sim::check(10, async |_| {
        let here = Adder(0).start();
        let there = Adder::start_in_arbiter(&Arbiter::new().handle(), |_| Adder(10));
        assert_eq!((here.send(Add(1)).await?, there.send(Add(1)).await?), (1, 11));
        let system = thread::spawn(|| {
            System::new().block_on(async { Adder(100).start().send(Add(1)).await })
        });
        assert_eq!(system.join().expect("it does not panic")?, 101);
        Ok(())
    });
}

#[test]
fn a_runtime_of_tokio_with_many_threads_and_sockets_runs() {
    sim::check(10, async |world| {
        let client = || {
            let runtime = tokio::runtime::Builder::new_multi_thread();
            let runtime = { runtime }.worker_threads(3).enable_all().build()?;
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
                let address = listener.local_addr()?;
                let server = tokio::spawn(async move {
                    let (mut peer, _) = listener.accept().await?;
                    tokio::time::sleep(Duration::from_secs(100)).await;
                    peer.write_all(b"hello").await
                });
                let mut text = String::new();
                let mut peer = tokio::net::TcpStream::connect(address).await?;
                peer.read_to_string(&mut text).await?;
                server.await??;
                std::io::Result::Ok(text)
            })
        };
        let before = world.now();
        assert_eq!(thread::spawn(client).join().expect("it does not panic")?, "hello");
        assert!(world.now() - before > Duration::from_secs(100));
        Ok(())
    });
}

#[test]
fn a_thread_that_reads_a_socket_waits_for_one_that_writes() {
    sim::check(10, async |_| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let reader = thread::spawn(move || {
            let mut text = String::new();
            listener.accept()?.0.read_to_string(&mut text).map(|_| text)
        });
        let mut peer = TcpStream::connect(address)?;
        thread::sleep(Duration::from_secs(100));
        peer.write_all(b"hello")?;
        drop(peer);
        assert_eq!(reader.join().expect("it does not panic")?, "hello");
        Ok(())
    });
}

#[test]
#[ignore = "another test starts it"]
fn one_seed_reads_what_nobody_writes() {
    sim::run(7, async |_| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.accept()?;
        Ok(())
    });
}

#[test]
fn a_wait_for_the_real_world_is_told() {
    let text = "head: main (0) waits for a descriptor, such as a socket";
    crate::fails("surroundings::one_seed_reads_what_nobody_writes", &[], &[text]);
}

#[test]
fn a_loop_until_a_time_ends() {
    sim::run(1, async |_| {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(10) {}
        assert!(SystemTime::now() > SystemTime::UNIX_EPOCH);
        Ok(())
    });
}

#[test]
#[ignore = "another test starts it"]
fn one_seed_draws() {
    sim::run(7, async |world| {
        let numbers = || -> Vec<u64> { (0..3).map(|_| rand::random()).collect() };
        world.note(format!("{:?}", thread::spawn(numbers).join()));
        let pool = Pool::new(1)?;
        world.note(format!("{:?}", pool.apply(rand::random::<u64>, ()).await?));
        let keys: HashMap<u64, ()> = (0..20).map(|key| (key, ())).collect();
        world.note(format!("{:?} {:?} {}", keys, SystemTime::now(), world.draw(3..900)));
        Ok(())
    });
}

#[test]
fn random_numbers_and_clocks_are_those_of_the_seed() {
    let draws = || {
        let (has_passed, output) = crate::run_test("surroundings::one_seed_draws", &[]);
        assert!(has_passed, "{output}");
        let history = output.split_once("Its history:").expect("it is printed").1;
        history.split_once("test result").expect("the test ends").0.to_string()
    };
    let first = draws();
    assert!(first.contains("SystemTime"), "{first}");
    assert_eq!(draws(), first);
}

#[test]
fn each_seed_has_its_own_journals() {
    fn square(x: u64) -> u64 {
        sim::world().count("runs");
        x * x
    }
    sim::check(5, async |world| {
        let pool = Pool::new(2)?.durable("squares");
        assert_eq!(pool.map(square, 0..3).await?, [0, 1, 4]);
        assert_eq!(world.counted("runs"), 3);
        Ok(())
    });
}
