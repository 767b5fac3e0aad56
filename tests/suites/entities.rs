//! Actors by key: `fiber::Entities`.

mod account;
mod events;
mod lives;
mod moves;
mod reminders;
mod terms;
