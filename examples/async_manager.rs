//! Four environments, each an actor in its own process. They are stepped first one after the other,
//! then in parallel.
//!
//! ```text
//! cargo run --release -p fiber-examples --example async_manager [-- STEPS]
//! ```

mod cartpole;

use std::time::Instant;

use actix::prelude::*;
use cartpole::{Action, CartPole, Observation};
use fiber::AsyncManager;

const ENVIRONMENTS: u64 = 4;
const STEPS: usize = 5000;

impl Actor for CartPole {
    type Context = Context<Self>;
}

#[fiber::message(Observation)]
struct Step(Action);

#[fiber::handlers]
impl CartPole {
    fn take_step(&mut self, Step(action): Step) -> Observation {
        self.step(action)
    }
}

fn action(step: usize) -> Action {
    if step.is_multiple_of(2) { Action::Left } else { Action::Right }
}

fn step_in_turn(steps: usize) -> fiber::Result<()> {
    let environments: Vec<_> = (0..ENVIRONMENTS)
        .map(|seed| AsyncManager::start(CartPole::new, seed).wait())
        .collect::<fiber::Result<_>>()?;
    let start = Instant::now();
    for step in 0..steps {
        for environment in &environments {
            environment.send(Step(action(step))).wait()?;
        }
    }
    println!("One by one: took {:.3}s", start.elapsed().as_secs_f64());
    Ok(())
}

fn step_in_parallel(steps: usize) -> fiber::Result<()> {
    let starting: Vec<_> =
        (0..ENVIRONMENTS).map(|seed| AsyncManager::start(CartPole::new, seed)).collect();
    let environments: Vec<_> =
        starting.into_iter().map(|starting| starting.wait()).collect::<fiber::Result<_>>()?;
    let start = Instant::now();
    for step in 0..steps {
        let pending: Vec<_> =
            environments.iter().map(|environment| environment.send(Step(action(step)))).collect();
        for observation in pending {
            observation.wait()?;
        }
    }
    println!("In parallel: took {:.3}s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Sends all steps before it waits for the first answer.
fn step_ahead(steps: usize) -> fiber::Result<()> {
    let starting: Vec<_> =
        (0..ENVIRONMENTS).map(|seed| AsyncManager::start(CartPole::new, seed)).collect();
    let environments: Vec<_> =
        starting.into_iter().map(|starting| starting.wait()).collect::<fiber::Result<_>>()?;
    let start = Instant::now();
    let steps =
        (0..steps).flat_map(|step| environments.iter().map(move |environment| (environment, step)));
    let pending: Vec<_> =
        steps.map(|(environment, step)| environment.send(Step(action(step)))).collect();
    for observation in pending {
        observation.wait()?;
    }
    println!("Ahead: took {:.3}s", start.elapsed().as_secs_f64());
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    fiber::init();
    let steps = std::env::args().nth(1).map_or(Ok(STEPS), |steps| steps.parse())?;
    step_in_turn(steps)?;
    step_in_parallel(steps)?;
    step_ahead(steps)?;
    Ok(())
}
