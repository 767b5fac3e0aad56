use fiber::Sender;

fn count(end: u64, out: Sender<u64>) {
    (0..end).for_each(|n| out.send(n).wait().unwrap());
}

fn main() {
    let pool = fiber::Pool::new(1).unwrap();
    // Literals and closures take the types of the function.
    let _: fiber::Stream<u64> = pool.stream(count, 3);
    let _ = pool.stream(|a: u8, b: u8, out: Sender<u8>| out.send(a + b).wait(), (1, 2));
    let _ = pool.stream(|x: u64| x, 3);
    let _ = pool.stream(count, "three");
    let _ = pool.stream(|out: Sender<u64>| 3_u64, ());
}
