//! A program whose types change from one build to the next.

use actix::prelude::*;
use fiber::manager::{Snapshot, Snapshots};
use fiber::{AsyncManager, Entities, Queue, Result, Ring, RingNode};
use fiber_test_support::scenario;
use serde::{Deserialize, Deserializer, Serialize};

use super::{durable_pool, journal, variable};

/// A type that has another field where a variable is set.
#[derive(Debug, Serialize)]
struct Place {
    x: u64,
}

impl<'de> Deserialize<'de> for Place {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Place, D::Error> {
        #[derive(Deserialize)]
        struct Old {
            x: u64,
        }
        #[derive(Deserialize)]
        struct New {
            x: u64,
            y: u64,
        }
        if variable("OTHER_BUILD").is_empty() {
            return Old::deserialize(deserializer).map(|Old { x }| Place { x });
        }
        New::deserialize(deserializer).map(|New { x, y }| Place { x: x + y })
    }
}

fn place(x: u64) -> Place {
    Place { x }
}

struct Walker(Place);

impl Actor for Walker {
    type Context = Context<Self>;
}

impl Snapshot for Walker {
    type State = Place;

    fn snapshot(&self) -> Place {
        place(self.0.x)
    }

    fn restore(&mut self, state: Place) {
        self.0 = state;
    }
}

#[fiber::message(u64)]
struct Walk;

#[fiber::handlers]
impl Walker {
    fn walk(&mut self, _: Walk) -> u64 {
        self.0.x += 1;
        self.0.x
    }
}

/// Records a value of the type in each way, or reads what an earlier run has recorded.
#[scenario("other build")]
fn other_build() -> Result<()> {
    let results = durable_pool()?.map(place, 0..3).wait();
    println!("pool: {:?}", results.map(|places| places.len()));

    let output = durable_pool()?.apply(place, 3).output().get().wait();
    println!("output: {:?}", output.map(|place| place.x));

    let pool = durable_pool()?;
    let output = pool.apply(place, 4).output();
    // Another argument, so that no earlier run has recorded the task.
    let build = variable("OTHER_BUILD");
    println!("task: {:?}", pool.apply(|place: Place, _: String| place.x, (output, build)).wait());

    let ring = Ring::builder().name("ring").size(1).durable(journal());
    println!("ring: {:?}", ring.run(|_: RingNode| place(1), ()).wait());

    let walker = AsyncManager::builder()
        .name("walker")
        .snapshots(Snapshots::every_messages(1))
        .durable(journal())
        .start(|| Walker(place(0)), ());
    let walked = walker.wait().and_then(|walker| {
        let walked = walker.send(Walk).wait();
        walker.stop().wait()?;
        walked
    });
    println!("actor: {walked:?}");

    let walkers = Entities::builder("walkers")
        .processes(1)
        .snapshots(Snapshots::every_messages(1))
        .durable(journal())
        .start(|_: String, ()| Walker(place(0)), ())
        .wait()?;
    println!("entity: {:?}", walkers.of("walker").send(Walk).wait());
    walkers.stop().wait()?;

    let queue = Queue::<Place>::builder().name("queue").durable(journal()).build()?;
    match queue.is_empty().wait()? {
        true => println!("queue: {:?}", queue.put(place(1)).wait()),
        false => println!("queue: {:?}", queue.get_acknowledged().wait().map(|place| place.x)),
    }
    Ok(())
}
