//! A program whose managed actor loses its process while no process can be started.

use actix::prelude::*;
use fiber::AsyncManager;
use serde::{Deserialize, Serialize};

use super::shortages::{self, Shortage};

struct Doubler;

impl Actor for Doubler {
    type Context = Context<Doubler>;
}

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "u64")]
struct Double(u64);

impl Handler<Double> for Doubler {
    type Result = u64;

    fn handle(&mut self, Double(x): Double, _: &mut Context<Doubler>) -> u64 {
        2 * x
    }
}

pub(super) fn shortage() {
    fiber::init();
    shortages::log();
    let manager = AsyncManager::<Doubler>::builder()
        .start(|()| Doubler, ())
        .wait()
        .expect("the actor starts");
    let shortage = Shortage::begin();
    shortages::kill(manager.pid().expect("the process runs"));
    shortages::wait_for_word();
    drop(shortage);
    println!("doubled {}", manager.send(Double(21)).wait().expect("the actor is restarted"));
}
