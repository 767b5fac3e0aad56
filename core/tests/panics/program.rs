//! A program that needs nothing but the standard library, so that it can be compiled with any panic
//! strategy in a moment.

#![allow(dead_code)]

#[path = "../../src/error/excerpt.rs"]
mod excerpt;
mod error {
    pub(crate) use crate::excerpt::excerpt;
}
#[path = "../../src/panics.rs"]
mod panics;

use std::panic::catch_unwind;

extern "C" fn foreign() {
    panic!("the cause {}", 7);
}

fn main() {
    let case = std::env::args().nth(1);
    let body = || match case.as_deref() {
        Some("foreign") => foreign(),
        _ => panic!("the cause {}", 7),
    };
    let caught = panics::catch(|| catch_unwind(body));
    assert!(caught.is_err_and(|panic| panic.message.contains("the cause 7")));
}
