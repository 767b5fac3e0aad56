//! The cart-pole environment: pushing a cart left or right keeps the pole on it from falling.
//!
//! Equations and constants are those of A. G. Barto, R. S. Sutton and C. W. Anderson, "Neuronlike
//! adaptive elements that can solve difficult learning control problems", IEEE Transactions on
//! Systems, Man, and Cybernetics SMC-13 (1983), pp. 834–846, without friction; limits, reward and
//! the length of an episode are those of Gym's CartPole-v1.

// The programs that include this module each use a part of it.
#![allow(dead_code)]

use fastrand::Rng;
use serde::{Deserialize, Serialize};

const GRAVITY: f64 = 9.8;
const CART_MASS: f64 = 1.0;
const POLE_MASS: f64 = 0.1;
const TOTAL_MASS: f64 = CART_MASS + POLE_MASS;
/// Half of the pole's length, in metres.
const HALF_LENGTH: f64 = 0.5;
/// In newtons.
const FORCE: f64 = 10.0;
/// In seconds.
const TIME_STEP: f64 = 0.02;
/// In metres from the middle.
const MAX_POSITION: f64 = 2.4;
/// In radians from upright: 12 degrees.
const MAX_ANGLE: f64 = 12.0 * std::f64::consts::PI / 180.0;
/// Steps of an episode.
pub(crate) const MAX_STEPS: u32 = 500;

/// Where to push the cart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Action {
    /// To the left.
    Left,
    /// To the right.
    Right,
}

/// Position and speed of the cart, angle and angular speed of the pole (m, m/s, rad, rad/s).
pub(crate) type State = [f64; 4];

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Observation {
    /// The state after the step.
    pub(crate) state: State,
    /// The reward for the step.
    pub(crate) reward: f64,
    /// Whether the episode ended with this step. The next step starts another.
    pub(crate) done: bool,
}

/// A cart with its pole.
#[derive(Debug)]
pub(crate) struct CartPole {
    state: State,
    steps: u32,
    over: bool,
    random: Rng,
}

impl CartPole {
    /// Creates an environment. Episodes start near the middle and upright, as `seed` decides.
    pub(crate) fn new(seed: u64) -> CartPole {
        let mut random = Rng::with_seed(seed);
        CartPole { state: beginning(&mut random), steps: 0, over: false, random }
    }

    /// Returns the current state.
    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Pushes the cart and simulates `TIME_STEP`. After the end of an episode it starts the next.
    pub(crate) fn step(&mut self, action: Action) -> Observation {
        if self.over {
            self.state = beginning(&mut self.random);
            self.steps = 0;
        }
        let [position, speed, angle, turn] = self.state;
        let force = if action == Action::Right { FORCE } else { -FORCE };
        let (sine, cosine) = angle.sin_cos();
        let pushed = (force + POLE_MASS * HALF_LENGTH * turn * turn * sine) / TOTAL_MASS;
        let turning = (GRAVITY * sine - cosine * pushed)
            / (HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * cosine * cosine / TOTAL_MASS));
        let pushing = pushed - POLE_MASS * HALF_LENGTH * turning * cosine / TOTAL_MASS;
        self.state = [
            position + TIME_STEP * speed,
            speed + TIME_STEP * pushing,
            angle + TIME_STEP * turn,
            turn + TIME_STEP * turning,
        ];
        self.steps += 1;
        let fell = self.state[0].abs() > MAX_POSITION || self.state[2].abs() > MAX_ANGLE;
        self.over = fell || self.steps == MAX_STEPS;
        Observation { state: self.state, reward: 1.0, done: self.over }
    }
}

fn beginning(random: &mut Rng) -> State {
    std::array::from_fn(|_| 0.1 * (random.f64() - 0.5))
}
