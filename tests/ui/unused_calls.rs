#![deny(unused_must_use)] // Dropping a call's handle at once cancels its tasks.

fn main() {
    let pool = fiber::Pool::new(1).unwrap();
    pool.apply(|x: u64| x, 1);
    pool.map(|x: u64| x, 0..2);
    pool.imap(|x: u64| x, 0..2);
    pool.imap_unordered(|x: u64| x, 0..2);
}
