//! Tests of the command that need no engine, in one binary, because each takes seconds to link.

mod command;
mod map;
mod new;
mod strangers;
mod surroundings;
