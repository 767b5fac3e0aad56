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
#[path = "../../src/stacks/user_code.rs"]
mod user_code;
mod stacks {
    pub(crate) use crate::user_code::{__rust_begin_short_backtrace as user_code, inside_border};
}

extern "C" fn foreign() {
    panic!("the cause {}", 7);
}

fn work() {
    panic!("the cause {}", 7);
}

/// Returns how often this program's file is mapped. Who reads its symbols maps it.
fn mappings() -> usize {
    let own = std::env::current_exe().unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.ends_with(own.to_str().unwrap())).count()
}

fn main() {
    let case = std::env::args().nth(1);
    let body = || match case.as_deref() {
        Some("foreign") => foreign(),
        _ => work(),
    };
    let before = mappings();
    let panic = panics::catch(body).unwrap_err();
    assert!(panic.message.contains("the cause 7"));
    assert_eq!(mappings(), before, "the panic has read symbols");
    if let Some(backtrace) = panic.backtrace() {
        assert!(mappings() > before, "symbols are read without a mapping");
        eprintln!("{backtrace}");
    }
}
