//! Simulated worlds for sessions of fiber: their threads run one at a time, in an order that a seed
//! decides, time passes only while all of them wait, and faults hit processes and links.
//!
//! - `run`, `world` and `baton`: threads, time and chance; `calls`: the calls of the C library by
//!   which threads reach them; `steps`: changes of threads at other places.
//! - `faults`: faults, and the unusual; `process`: what is the same in each process.
//! - `program`: functions for the code that runs in a world.
//! - `log`: histories, and `page`: the same in HTML; `apart` and `check`: seeds in processes of
//!   their own, for users' tests.

mod apart;
mod baton;
mod calls;
mod check;
mod faults;
mod log;
mod page;
mod process;
mod program;
mod run;
mod steps;
mod world;

pub use apart::{Apart, run_apart};
pub use check::{Seeds, check};
pub use faults::{Faults, storm};
pub use log::{Event, Kind, Log};
pub use page::page;
pub use process::{fix_addresses, use_core};
pub use program::{
    all_counted, begin_head, count, count_effect, counted, counted_effect, die, draw, end_process,
    is_dead, is_here, let_happen, let_threads_be_short, make_room_on_disk, nap, note, now,
    processes, reset, set_slow, set_slowest, set_unusual, stop, strike,
};
pub use run::{End, History, Options, run};
