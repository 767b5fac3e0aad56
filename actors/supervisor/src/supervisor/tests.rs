//! The promises of supervisors, with scripted children and real actors.

mod actors;
mod adding;
mod backoff;
mod nested;
mod restarts;
mod scripted;
mod stopping;
mod watching;
