use std::sync::atomic::AtomicBool;
use std::time::Duration;

use fiber_core::{BuildId, Config, Failure, FailureKind};
use fiber_transport::{Message, PeerInfo, connect, join_session};
use tokio::sync::oneshot;

use super::wire::Frame;
use super::*;
use crate::endpoint::{MESH, send_heartbeats};
use crate::runtime::Runtime;

/// The time limit of each step.
const LONG: Duration = Duration::from_secs(120);

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
    tokio::time::timeout(LONG, ended).await.expect("the link is closed");
}

/// Notes that it has lost a peer.
struct LosesPeer(Arc<AtomicBool>);

impl Port for LosesPeer {
    fn receive(&self, _: Request) {}

    fn lost(&self, _: PeerId) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn silent_peers_are_dropped_and_invalid_frames_and_unknown_messages_harm_nothing() {
    // Before `init`, without which no other test can have read the configuration.
    Config::set(|config| {
        config.heartbeat = Duration::from_millis(100);
        config.heartbeat_timeout = Duration::from_secs(2);
    });
    crate::runtime::init();
    let runtime = Runtime::get().unwrap();
    let address = runtime.address_now().unwrap();
    actix_rt::System::new().block_on(async {
        let mut silent = connect(address, runtime.key()).await.unwrap();
        join_session(&mut silent, runtime.key(), &info(runtime)).await.unwrap();
        end(silent).await;

        let mut lively = connect(address, runtime.key()).await.unwrap();
        let lively_info = info(runtime);
        join_session(&mut lively, runtime.key(), &lively_info).await.unwrap();
        let link = Arc::clone(&lively.link);
        let heartbeats =
            send_heartbeats(Arc::clone(&link), Duration::from_millis(20), wire::heartbeat);
        fiber_core::spawn_local(heartbeats);
        // Invalid frames are ignored, and the query after them is answered.
        link.send(Message::new(vec![MESH, 99])).unwrap();
        link.send(Message::new(vec![99])).unwrap();
        let query = Query::ActorEnd { actor: ActorId(7777) };
        link.send(Payload::query(&query).into_message(5)).unwrap();
        loop {
            let frame = lively.next().await.expect("the link lives").unwrap();
            match Frame::read(frame) {
                Some(Frame::Answer { call: 5, .. }) => break,
                Some(Frame::Heartbeat) => {}
                _ => panic!("an answer was expected"),
            }
        }

        // A message that its receiver can't handle.
        let inbox = Arc::new(Inbox::new(1, Full::Fail));
        let actor = runtime.registry().export(Arc::clone(&inbox), || None);
        let unknown = fiber_values::entry::EntryRef { offset: 8, name: 7 };
        link.send(Payload::call(actor, unknown, Terms::default(), &()).unwrap().into_message(6))
            .unwrap();
        let message = std::future::poll_fn(|task| inbox.poll_next(task)).await.expect("it is open");
        assert_eq!(message.method, unknown);
        let failure = Failure::new(FailureKind::Unknown, "another build");
        message.responder.fail(&CallFailure::Failed(failure));
        loop {
            let frame = lively.next().await.expect("the link lives").unwrap();
            match Frame::read(frame) {
                Some(Frame::Failed { call: 6, failure: CallFailure::Failed(failure) }) => {
                    assert_eq!(failure.kind, FailureKind::Unknown);
                    assert_eq!(failure.message, "another build");
                    break;
                }
                Some(Frame::Heartbeat) => {}
                _ => panic!("a failure was expected"),
            }
        }

        // Ports, as that of the names, know of a lost process before calls to it fail.
        let is_lost = Arc::<AtomicBool>::default();
        let port = LosesPeer(Arc::clone(&is_lost));
        let _port = runtime.registry().ports().open(|_| port);
        let (failed, was_lost) = oneshot::channel();
        let note = move |_| {
            let _ = failed.send(is_lost.load(Ordering::Relaxed));
        };
        let pending = Pending::new(Waiter::Callback(Box::new(note)));
        let lively = ProcessRef { id: lively_info.id, address: "nowhere".into() };
        let sent =
            runtime.mesh().channel(&lively).send(Payload::query(&Query::Flush), Some(pending));
        assert!(sent.is_ok());
        link.close();
        assert!(was_lost.await.unwrap());

        let mut stray = connect(address, runtime.key()).await.unwrap();
        let elsewhere = PeerInfo { to: ProcessId::random(), ..info(runtime) };
        let refusal = join_session(&mut stray, runtime.key(), &elsewhere).await.unwrap_err();
        assert!(refusal.to_string().contains("not this one"), "{refusal}");
    });
}
