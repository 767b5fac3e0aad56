fn length(text: &str) -> usize {
    text.len()
}

fn name(_: u8) -> &'static str {
    "a name"
}

fn main() {
    let pool = fiber::Pool::new(1).unwrap();
    let _ = pool.apply(length, "text");
    let _ = pool.map(name, [1, 2]);
}
