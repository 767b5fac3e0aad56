use std::time::Duration;

use fiber_core::{BuildId, Config, FailureKind};
use fiber_transport::{Message, PeerInfo, connect, join_session};

use super::*;
use crate::remote::Dispatch;
use crate::runtime::Runtime;

/// How long anything may take that is to happen at all.
const LONG: Duration = Duration::from_secs(20);

fn info(runtime: &Runtime) -> PeerInfo {
    PeerInfo {
        id: ProcessId::random(),
        to: runtime.id(),
        role: Role::Peer,
        build: BuildId::current().unwrap().clone(),
        pid: 1,
        host: "nowhere".into(),
    }
}

async fn end(mut connection: Connection) {
    let ended = async { while let Some(Ok(_)) = connection.next().await {} };
    tokio::time::timeout(LONG, ended).await.expect("the link is given up");
}

#[test]
fn peers_that_fall_silent_or_are_looked_for_in_vain_are_given_up() {
    crate::init();
    Config::set(|config| {
        config.heartbeat = Duration::from_millis(20);
        config.heartbeat_timeout = Duration::from_millis(100);
    });
    let runtime = Runtime::get().unwrap();
    let address = runtime.address_now().unwrap();
    actix_rt::System::new().block_on(async {
        let mut silent = connect(address, runtime.key()).await.unwrap();
        join_session(&mut silent, runtime.key(), &info(runtime)).await.unwrap();
        end(silent).await;

        let mut lively = connect(address, runtime.key()).await.unwrap();
        join_session(&mut lively, runtime.key(), &info(runtime)).await.unwrap();
        let link = Arc::clone(&lively.link);
        let beating = send_heartbeats(Arc::clone(&link), Duration::from_millis(20), wire::beat);
        tokio::task::spawn_local(beating);
        // Nonsense harms nobody, and what is said after it is answered.
        link.send(Message::new(vec![MESH, 99])).unwrap();
        link.send(Message::new(vec![99])).unwrap();
        let question = Question::Ended { actor: ActorId(7777) };
        link.send(Payload::ask(&question).into_message(5)).unwrap();
        loop {
            let frame = lively.next().await.expect("the link lives").unwrap();
            match Frame::read(frame) {
                Some(Frame::Answer { call: 5, .. }) => break,
                Some(Frame::Beat) => {}
                _ => panic!("an answer was asked for"),
            }
        }

        // A message that this build does not know: only another build could send it, and that is
        // refused before.
        struct Deaf;
        impl actix::Actor for Deaf {
            type Context = actix::Context<Deaf>;
        }
        let inbox = Arc::new(Inbox::new(1));
        let actor = runtime.registry().export(Arc::clone(&inbox), || true);
        let mut dispatch = Dispatch::new(usize::MAX);
        let unknown = fiber_core::entry::EntryRef { offset: 8, name: 7 };
        link.send(Payload::call(actor, unknown, &()).unwrap().into_message(6)).unwrap();
        let delivery =
            std::future::poll_fn(|task| inbox.poll_next(task)).await.expect("it is open");
        let addr = actix::Actor::start(Deaf);
        dispatch.handle(&mut addr.clone(), &mut (), delivery).unwrap();
        loop {
            let frame = lively.next().await.expect("the link lives").unwrap();
            match Frame::read(frame) {
                Some(Frame::Failed { call: 6, failure: CallFailure::Failed(failure) }) => {
                    assert_eq!(failure.kind, FailureKind::Unknown);
                    assert!(failure.message.contains("another build"), "{failure}");
                    break;
                }
                Some(Frame::Beat) => {}
                _ => panic!("a failure was to be told"),
            }
        }

        let mut stray = connect(address, runtime.key()).await.unwrap();
        let elsewhere = PeerInfo { to: ProcessId::random(), ..info(runtime) };
        let refusal = join_session(&mut stray, runtime.key(), &elsewhere).await.unwrap_err();
        assert!(refusal.to_string().contains("not this one"), "{refusal}");
    });
}
