//! The `Debug` form of errors, which `main` and `unwrap` print.

use std::fmt;

use super::Error;

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            return variant(self, f);
        }
        write!(f, "{self}")?;
        match self.backtrace() {
            Some(backtrace) => write!(f, "\n\nbacktrace of the panic:\n{backtrace}"),
            None => Ok(()),
        }
    }
}

/// Writes the variant with its fields, as the derived implementation would.
fn variant(error: &Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    macro_rules! variants {
        ($($name:ident { $($field:ident),* })+) => {
            match error {
                Error::Config(problem) => f.debug_tuple("Config").field(problem).finish(),
                $(Error::$name { $($field),* } => {
                    let mut shown = f.debug_struct(stringify!($name));
                    $(shown.field(stringify!($field), $field);)*
                    shown.finish()
                })+
            }
        };
    }
    variants! {
        NotInitialized {}
        Invalid { method, problem }
        Start { name, reason }
        Exited { name, exit }
        Task { function, index, failure }
        WorkerDied { function, index, deaths, exit }
        TaskTimedOut { function, index, deaths, exit }
        InputFailed { function, index, cause }
        OutputFailed { problem }
        StreamFailed { problem }
        Cancelled { function }
        PoolEnded { name, reason }
        TimeLimit { function, usual, left }
        TimedOut { what, limit }
        Encode { type_name, cause }
        Decode { type_name, cause }
        TooLarge { what, size, limit }
        UnknownEntry { offset, build }
        WouldDeadlock {}
        Forked {}
        ActorStopped { name, reason }
        Call { name, message, failure }
        Member { index, name, cause }
        MailboxFull { name, capacity }
        NoSuchName { name }
        NameTaken { name, holder, process }
        OtherType { what, found, asked }
        TooSlow { topic, waiting }
        NoMembers { group }
        OwnerEnded { what, reason }
        Closed { what, reason }
        OtherSession { name }
        RankDied { name, reason, rank, exit }
        Ring { name, problem }
        Journal { journal, cause }
        System { what, cause }
    }
}
